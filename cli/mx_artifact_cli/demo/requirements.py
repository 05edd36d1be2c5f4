"""Checks, before anything is compiled, what the demo can run on this machine."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from mx_artifacts.errors import ConfigurationError

MODULES = {"inductor": "torch", "triton": "triton"}
"""The compiler of each kind."""


def runnable_kinds(wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the kinds to run, and the kinds whose compiler is not installed.

    `wanted` are the kinds that the user named; if there are none, all possible kinds are run.

    Raises:
        ConfigurationError: the compiler of a named kind is missing, or all compilers are missing.
    """
    kinds = list(dict.fromkeys(wanted)) or list(MODULES)
    missing = [kind for kind in kinds if find_spec(MODULES[kind]) is None]
    if missing and (wanted or len(missing) == len(kinds)):
        modules = [MODULES[kind] for kind in missing]
        raise ConfigurationError(
            f"the demo cannot compile, because {' and '.join(modules)} cannot be imported",
            hint=f"run `pip install {' '.join(modules)}`, or run `make demo`",
        )
    return [kind for kind in kinds if kind not in missing], missing


def check_compiler(environment: Mapping[str, str]) -> None:
    """Check that Inductor can compile C++ for the CPU.

    Raises:
        ConfigurationError: there is no compiler, or no Python.h.
    """
    compiler = environment.get("CXX") or "g++"
    if which(compiler, path=environment.get("PATH")) is None:
        raise ConfigurationError(
            f"torch.compile needs a C++ compiler, but {compiler} was not found",
            hint="install one (Debian: apt install g++), or name one in the variable CXX",
        )
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        raise ConfigurationError(
            f"torch.compile needs the C headers of Python, but {header} does not exist",
            hint="install them (Debian: apt install python3-dev)",
        )
