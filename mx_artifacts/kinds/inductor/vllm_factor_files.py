"""Compares vLLM's cache_key_factors.json, which lists the factors of a cache directory's name.

vLLM writes one beside each compile cache (vllm/compilation/backends.py). If two nodes have
different hash directories, the factors that differ are the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from mx_artifacts.errors import ConfigurationError
from mx_artifacts.filesystem.regular_file import read_regular_file
from mx_artifacts.kinds.base import KeyFactors
from mx_artifacts.kinds.inductor.vllm_factors import (
    FACTORS_FILE,
    MAX_FACTORS_BYTES,
    differing,
    factor_differences,
    flat_factors,
)

_ADVICE = {
    "env": "set this environment variable alike on both nodes, if it should not differ",
    "config_hash": "start vLLM with the same flags (--max-num-batched-tokens, --model, …)",
    "code_hash": "run the same image: the model's code or its path differs",
    "compiler_hash": "run the same image on the same GPU: torch, Triton or their settings differ",
}


def advice_for_factor(name: str) -> str:
    """Return what to do where this factor differs."""
    return _ADVICE.get(name.partition(".")[0], "run the same image with the same flags")


def compare_factor_files(ours: Path, theirs: Path) -> dict[str, tuple[str, str]]:
    """Return {factor: (ours, theirs)} of those that differ, nested ones as `env.VLLM_X`.

    Each path is such a file, or a directory that holds one at any depth, or one for each rank: they
    are equal.

    Raises:
        ConfigurationError: a path has no such file, or unlike ones, or it is damaged.
    """
    return differing(_factors(ours), _factors(theirs))


def _factors(path: Path) -> dict[str, str]:
    try:
        file = _file_at(path)
        document = json.loads(read_regular_file(file, MAX_FACTORS_BYTES))
        factors = flat_factors(document)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{file} has no JSON object")
    return factors


def _file_at(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = _unlike(sorted(path.rglob(FACTORS_FILE)))
    if not found:
        raise ConfigurationError(
            f"{path} has no file {FACTORS_FILE}",
            hint="state the directory torch_compile_cache of vLLM",
        )
    if len(found) > 1:
        listed = ", ".join(str(file.relative_to(path)) for file in found[:8])
        raise ConfigurationError(
            f"{path} has {len(found)} different files {FACTORS_FILE}: {listed}",
            hint="state one of them",
        )
    return found[0]


def _unlike(files: Iterable[Path]) -> list[Path]:
    """Return the first of each set of equal files."""
    first: dict[bytes, Path] = {}
    for file in files:
        first.setdefault(read_regular_file(file, MAX_FACTORS_BYTES), file)
    return list(first.values())


VLLM_FACTORS = KeyFactors(
    file_name=FACTORS_FILE,
    max_bytes=MAX_FACTORS_BYTES,
    finding="vLLM uses another hash directory than was installed: start it as on the source",
    differences=factor_differences,
    compare_files=compare_factor_files,
    advice_for=advice_for_factor,
)
