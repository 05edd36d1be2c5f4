"""What the demo can run here, asked before anything is compiled."""

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
    """Return the kinds to run, and those left out since their compiler is not installed.

    `wanted` are kinds that the user named; none means all that are possible.

    Raises:
        ConfigurationError: a named kind's compiler is missing, or every one is.
    """
    kinds = list(dict.fromkeys(wanted)) or list(MODULES)
    missing = [kind for kind in kinds if find_spec(MODULES[kind]) is None]
    if missing and (wanted or len(missing) == len(kinds)):
        modules = [MODULES[kind] for kind in missing]
        raise ConfigurationError(
            f"the demo cannot compile: {' and '.join(modules)} cannot be imported",
            hint=f"pip install {' '.join(modules)}, or run `make demo`",
        )
    return [kind for kind in kinds if kind not in missing], missing


def check_compiler(environment: Mapping[str, str]) -> None:
    """Check what Inductor compiles C++ for the CPU with.

    Raises:
        ConfigurationError: there is no compiler, or no Python.h.
    """
    compiler = environment.get("CXX") or "g++"
    if which(compiler, path=environment.get("PATH")) is None:
        raise ConfigurationError(
            f"torch.compile needs a C++ compiler, and there is no {compiler}",
            hint="install one (Debian: apt install g++), or name it in CXX",
        )
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        raise ConfigurationError(
            f"torch.compile needs Python's C headers, and there is no {header}",
            hint="install them (Debian: apt install python3-dev)",
        )
