"""The Pythons that the caches of the matrix belong to, and what else their compilers need.

usage: python -m tests.kinds.environments NAMES
Prints which environments the named caches ("all", or "triton,inductor") need beside the project's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.kinds.caches import CACHES, Cache
from tests.support.child import REPOSITORY
from tests.support.nodes import clean_environment

PROJECT = "project"
CUDA_PROGRAMS = Path("/usr/local/cuda/bin")
"""Where NVIDIA's installers put nvcc; looked into after PATH."""

_FOREIGN = (
    *("MX_", "MODEL_EXPRESS_", "XDG_", "PYTHON", "TORCH", "TRITON_", "VLLM_", "FLASHINFER_"),
    *("TVM_", "TILELANG_", "CUTE_DSL_", "CUTLASS_", "DG_", "DJ_", "CUDA_"),
)
"""Variables that move caches, or change what is compiled or whose Python runs."""


@dataclass(frozen=True)
class Environment:
    """The interpreter and the variables of a node on which a cache's compiler is installed."""

    python: Path
    variables: Mapping[str, str]


def python_of(name: str) -> Path:
    """Return the interpreter of an environment, whether or not it is there."""
    if name == PROJECT:
        return Path(sys.executable)
    return REPOSITORY / ".venvs" / f"kinds-{name}" / "bin" / "python"


def environment_of(cache: Cache) -> Environment:
    """Return where programs of `cache` run, its node's directories not yet set."""
    python = python_of(cache.environment)
    variables = clean_environment(Path("/nowhere"))
    kept = {name: v for name, v in variables.items() if not name.startswith(_FOREIGN)}
    path = (python.parent, *filter(None, [kept.get("PATH")]), CUDA_PROGRAMS)
    return Environment(
        python,
        {
            **kept,
            "PATH": os.pathsep.join(map(str, path)),
            "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "cli"))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MX_WORKER_GRPC_PORT": "0",
        },
    )


def missing(cache: Cache) -> str:
    """Say what `cache` needs and this machine has not, or "" if it has all."""
    environment = environment_of(cache)
    home = environment.python.parents[1]
    if cache.environment != PROJECT and not (home / ".ready").exists():
        log = home.with_suffix(".log")
        said = log.read_text().strip().splitlines()[-1:] if log.exists() else []
        return f"environment {cache.environment} is not there" + "".join(f": {s}" for s in said)
    absent = [p for p in cache.needs if not shutil.which(p, path=environment.variables["PATH"])]
    return f"there is no {' and no '.join(absent)}" if absent else ""


def chosen(names: str) -> list[Cache]:
    """Return the caches that `names` means, by commas: "all", or names.

    A name that is no cache's own means all caches that begin with it, or the environment.
    """
    wanted = set(names.split(","))
    further = wanted - {cache.name for cache in CACHES}
    found = [
        cache
        for cache in CACHES
        if cache.name in wanted
        or further & {"all", cache.name.partition("/")[0], cache.environment}
    ]
    if not found:
        known = ", ".join(cache.name for cache in CACHES)
        raise ValueError(f"no real cache is called {names}; there are {known}")
    return found


def package_versions(name: str, packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of those of `packages` that an environment has."""
    code = (
        "import sys; from importlib.metadata import version, PackageNotFoundError\n"
        "for name in sys.argv[1:]:\n"
        "    try: print(name, version(name))\n"
        "    except PackageNotFoundError: pass\n"
    )
    done = subprocess.run(
        [python_of(name), "-c", code, *packages], capture_output=True, text=True, check=True
    )
    return dict(line.split() for line in done.stdout.splitlines())


if __name__ == "__main__":
    try:
        needed = {cache.environment for cache in chosen(sys.argv[1])} - {PROJECT}
    except ValueError as error:
        sys.exit(str(error))
    print(*sorted(needed))
