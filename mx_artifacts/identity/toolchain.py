"""Probes of compilers, and of paths that enter a compiler's own key (docs/cache-facts.md).

A path counts as it is spelled: ninja and the compilers compare command lines, not files.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from importlib import metadata

from mx_artifacts.identity.facts import Fact, Probe, ProbeContext
from mx_artifacts.kinds.base import ABSENT
from mx_artifacts.node.installed import (
    CannotProbe,
    ComponentAbsent,
    deep_gemm_includes,
    package_directory,
    run_program,
)

TOOL_TIMEOUT_SECONDS = 30.0
_DEFAULT_CUDA_HOME = "/usr/local/cuda"


def find_program(name: str, context: ProbeContext) -> str:
    """Return the path of a program on the environment's PATH; ComponentAbsent if there is none."""
    program = shutil.which(name, path=context.env.get("PATH", ""))
    if program is None:
        raise ComponentAbsent(f"no {name} on PATH")
    return program


def _output(argv: tuple[str, ...], context: ProbeContext) -> str:
    return run_program(argv, context.env, timeout_seconds=TOOL_TIMEOUT_SECONDS)


def ninja_version(context: ProbeContext) -> Fact:
    """A ninja rebuilds what another version of it has logged."""
    program = find_program("ninja", context)
    return Fact(_output((program, "--version"), context), f"probed: {program} --version")


def cuda_home(context: ProbeContext) -> Fact:
    """The toolkit's directory, as FlashInfer and TVM-FFI choose and spell it."""
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
    """The line of `nvcc --version` that names its build; all of the text is in DeepGEMM's key."""
    nvcc = os.path.join(cuda_home(context).value, "bin", "nvcc")
    if not os.access(nvcc, os.X_OK):
        nvcc = find_program("nvcc", context)
    lines = _output((nvcc, "--version"), context).splitlines()
    build = next((line.removeprefix("Build ") for line in lines if line.startswith("Build ")), "")
    return Fact(build or " ".join(lines), f"probed: {nvcc} --version")


def cxx_version(context: ProbeContext) -> Fact:
    """The C++ compiler of host code: $CXX, else c++."""
    program = find_program(context.env.get("CXX") or "c++", context)
    version = _output((program, "--version"), context)
    return Fact("".join(version.splitlines()[:1]), f"probed: {program} --version")


def package_path(module: str) -> Probe:
    """Return a probe of the directory that a package is installed in."""
    return lambda context: Fact(str(package_directory(module)), f"probed: package {module}")


def deep_gemm_include_dir(context: ProbeContext) -> Fact:
    """The include directory, which the key of DeepGEMM 2 has; DeepJIT's has contents only."""
    include = deep_gemm_includes()
    if (include / "deep_jit").is_dir():
        raise ComponentAbsent("DeepJIT's key has no paths")
    return Fact(str(include), "probed: deep_gemm's -I")


def site_packages(context: ProbeContext) -> Fact:
    """Where packages, and so the sources of kernels in them, are installed."""
    return Fact(sysconfig.get_path("purelib"), "probed: sysconfig purelib")


_RUNTIME_LIBRARY = "libcute_dsl_runtime.so"
_CUTE_DSL = ("nvidia-cutlass-dsl", "nvidia-cutlass-dsl-libs-base", "nvidia-cutlass-dsl-libs-cu13")


def cute_dsl_libs(context: ProbeContext) -> Fact:
    """The path of the DSL's runtime library, which its key has; CUTE_DSL_LIBS pins it."""
    if pinned := context.env.get("CUTE_DSL_LIBS"):
        return Fact(pinned, "CUTE_DSL_LIBS")
    for name in _CUTE_DSL:
        try:
            files = metadata.distribution(name).files or ()
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == _RUNTIME_LIBRARY:
                return Fact(str(file.locate()), f"probed: files of {name}")
    # Not listed where it was expected; the package lies beside it in any case.
    return package_path("cutlass")(context)


# --- Inductor's kernels for the CPU ---------------------------------------------------------------

# The library alone, since importing torch takes seconds; its own answer where that does not work.
_ASK_THREADS = """
import ctypes, sys
try:
    print(ctypes.CDLL(sys.argv[1])._ZN2at15get_num_threadsEv())
except (OSError, AttributeError):
    import torch
    print(torch.get_num_threads())
"""
_IMPORT_TIMEOUT_SECONDS = 120.0


def _threads(context: ProbeContext) -> Fact:
    library = package_directory("torch") / "lib" / "libtorch_cpu.so"
    argv = (sys.executable, "-c", _ASK_THREADS, str(library))
    threads = run_program(argv, context.env, timeout_seconds=_IMPORT_TIMEOUT_SECONDS)
    if not threads.isdecimal() or threads == "0":
        raise CannotProbe(f"torch's number of threads is {threads[:80]!r}")
    return Fact(threads, "probed: torch's number of threads")


def _python_include(context: ProbeContext) -> Fact:
    return Fact(sysconfig.get_path("include"), "probed: sysconfig include")


def _of_cpu_code(probe: Probe) -> Probe:
    """Return a probe of what matters to kernels for the CPU only, which GPU graphs do not hold."""

    def only_without_gpu(context: ProbeContext) -> Fact:
        if context.gpu_arch != ABSENT:
            raise ComponentAbsent("graphs for a GPU hold no kernels for the CPU")
        return probe(context)

    return only_without_gpu


cpp_threads = _of_cpu_code(_threads)
cpp_torch_path = _of_cpu_code(package_path("torch"))
cpp_python_include = _of_cpu_code(_python_include)
cpp_compiler = _of_cpu_code(cxx_version)
