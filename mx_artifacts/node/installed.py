"""What is installed, read without importing it: importing torch to learn its version takes seconds.

Every function raises `ComponentAbsent` where the component is known not to be there, and
`CannotProbe` where it may be there but does not tell.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import runpy
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from mx_artifacts.node.environment import Environment


class CannotProbe(Exception):
    """A value cannot be determined here; says what was tried."""


class ComponentAbsent(CannotProbe):
    """The component that the value belongs to is not installed here."""


def distribution_version(name: str) -> str:
    """Return the version of an installed distribution.

    A version such as "0+unknown", which build tools write when they do not know, does not count:
    two nodes that do not know must not match.
    """
    try:
        version = str(metadata.version(name) or "")
    except metadata.PackageNotFoundError:
        raise ComponentAbsent(f"{name} is not installed") from None
    except Exception as error:  # whatever broken metadata raises
        raise CannotProbe(f"the metadata of {name} is damaged: {error!r}") from error
    if not version or "unknown" in version.lower() or version == "0.0.0":
        raise CannotProbe(f"the installed {name} states the version {version!r}")
    return version


def is_installed(distribution: str) -> bool:
    """Return whether a distribution is installed, also where its metadata is damaged."""
    try:
        distribution_version(distribution)
    except ComponentAbsent:
        return False
    except CannotProbe:
        return True
    return True


def package_directory(module: str) -> Path:
    """Return the directory of a top-level package, without importing it."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise ComponentAbsent(f"{module} is not installed")
    return Path(spec.origin).parent


@dataclass(frozen=True)
class TorchBuild:
    """What torch was built for. `toolkit` is "" for a CPU-only build."""

    version: str
    accelerator: str
    toolkit: str


@functools.cache
def torch_build() -> TorchBuild:
    """Return what torch/version.py says; it is run alone, without importing torch."""
    path = package_directory("torch") / "version.py"
    try:
        variables = runpy.run_path(str(path))
        version = str(variables["__version__"])
    except Exception as error:
        raise CannotProbe(f"{path} cannot be run: {error!r}") from error
    if variables.get("cuda"):
        return TorchBuild(version, "cuda", str(variables["cuda"]))
    for attribute, accelerator in (("hip", "rocm"), ("xpu", "xpu")):
        if variables.get(attribute):
            # Not to be taken for a CUDA version.
            return TorchBuild(version, accelerator, f"{attribute}-{variables[attribute]}")
    return TorchBuild(version, "cpu", "")


def run_for_json(argv: tuple[str, ...], env: Environment, *, timeout_seconds: float) -> object:
    """Run a program from / and return the JSON that it prints; asked once a process.

    Raises:
        CannotProbe: it fails, takes too long, or prints something else. Not remembered.
    """
    output = run_program(argv, env, timeout_seconds=timeout_seconds)
    try:
        answer: object = json.loads(output)
    except ValueError:
        raise CannotProbe(f"{argv[0]} printed no JSON: {output[:80]!r}") from None
    return answer


def run_program(argv: tuple[str, ...], env: Environment, *, timeout_seconds: float) -> str:
    """Run a program from / and return what it prints, stripped; asked once a process.

    Raises:
        CannotProbe: it fails or takes too long. Not remembered.
    """
    return _run_once(argv, tuple(sorted(env.items())), timeout_seconds)


@functools.lru_cache(maxsize=64)
def _run_once(
    argv: tuple[str, ...], env: tuple[tuple[str, str], ...], timeout_seconds: float
) -> str:
    try:
        done = subprocess.run(
            argv,
            env=dict(env),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotProbe(f"{argv[0]}: {error}") from error
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise CannotProbe(reason)
    return done.stdout.strip()
