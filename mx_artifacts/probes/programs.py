"""Probes of compilers and of ninja, for kinds that have them in their keys or command lines.

Paths are compared as they are spelled: ninja and the compilers compare command lines, not files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from mx_artifacts.node.installed import ComponentAbsent, run_program
from mx_artifacts.probes.base import SAME_IMAGE, Fact, IdentityValue, ProbeContext

_TIMEOUT_SECONDS = 30.0
_DEFAULT_CUDA_HOME = "/usr/local/cuda"


def find_program(name: str, context: ProbeContext) -> str:
    """Return the path of a program on the environment's PATH; ComponentAbsent if there is none."""
    program = shutil.which(name, path=context.env.get("PATH", ""))
    if program is None:
        raise ComponentAbsent(f"no {name} on PATH")
    return program


def _version_text(program: str, context: ProbeContext) -> str:
    return run_program((program, "--version"), context.env, timeout_seconds=_TIMEOUT_SECONDS)


def ninja_version(context: ProbeContext) -> Fact:
    """Return ninja's version: one rebuilds what another version has logged."""
    program = find_program("ninja", context)
    return Fact(_version_text(program, context), f"probed: {program} --version")


def cuda_home(context: ProbeContext) -> Fact:
    """Return the toolkit's directory, as FlashInfer and TVM-FFI choose and spell it."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if context.env.get(variable):
            return Fact(context.env[variable], variable)
    try:
        nvcc = find_program("nvcc", context)
    except ComponentAbsent:
        if os.path.isdir(_DEFAULT_CUDA_HOME):
            return Fact(_DEFAULT_CUDA_HOME, "probed: the default")
        raise
    return Fact(os.path.dirname(os.path.dirname(nvcc)), "probed: nvcc on PATH")


def nvcc_version(context: ProbeContext) -> Fact:
    """Return the line of `nvcc --version` that names its build."""
    nvcc = os.path.join(cuda_home(context).value, "bin", "nvcc")
    if not os.access(nvcc, os.X_OK):
        nvcc = find_program("nvcc", context)
    lines = _version_text(nvcc, context).splitlines()
    build = next((line.removeprefix("Build ") for line in lines if line.startswith("Build ")), "")
    return Fact(build or " ".join(lines), f"probed: {nvcc} --version")


def cxx_version(context: ProbeContext) -> Fact:
    """Return the first line of the C++ compiler of host code: $CXX, else c++."""
    program = find_program(context.env.get("CXX") or "c++", context)
    version = _version_text(program, context)
    return Fact("".join(version.splitlines()[:1]), f"probed: {program} --version")


NVCC_VERSION = IdentityValue(nvcc_version, SAME_IMAGE)

NINJA_VALUES: Mapping[str, IdentityValue] = {
    "ninja_version": IdentityValue(ninja_version, SAME_IMAGE),
    "nvcc_version": NVCC_VERSION,
    "cxx_version": IdentityValue(cxx_version, SAME_IMAGE),
    "cuda_home": IdentityValue(
        cuda_home, "set CUDA_HOME to the same path on both nodes; ninja compares its spelling"
    ),
}
"""For kinds whose modules ninja builds, with nvcc and a C++ compiler."""
