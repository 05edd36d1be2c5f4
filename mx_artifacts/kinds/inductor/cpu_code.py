"""Probes of values that affect Inductor's CPU kernels, which are built with -march=native."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from mx_artifacts.node.installed import (
    CannotProbe,
    ComponentAbsent,
    package_directory,
    run_program,
)
from mx_artifacts.probes.base import (
    ABSENT,
    SAME_IMAGE,
    SAME_PLACE,
    Fact,
    IdentityValue,
    Probe,
    ProbeContext,
)
from mx_artifacts.probes.host import CPU_VALUES, python_include
from mx_artifacts.probes.packages import path_probe
from mx_artifacts.probes.programs import cxx_version

# The library alone, since importing torch takes seconds; its own answer where that does not work.
_ASK_THREADS = """
import ctypes, sys
try:
    print(ctypes.CDLL(sys.argv[1])._ZN2at15get_num_threadsEv())
except (OSError, AttributeError):
    import torch
    print(torch.get_num_threads())
"""
_TIMEOUT_SECONDS = 120.0


def _aten_cpu_capability(context: ProbeContext) -> Fact:
    # Unset, torch takes what the CPU has; "default" is another thing, no vectors at all.
    value = context.env.get("ATEN_CPU_CAPABILITY")
    return Fact(value, "ATEN_CPU_CAPABILITY") if value else Fact("auto", "probed: not set")


def _threads(context: ProbeContext) -> Fact:
    library = package_directory("torch") / "lib" / "libtorch_cpu.so"
    argv = (sys.executable, "-c", _ASK_THREADS, str(library))
    threads = run_program(argv, context.env, timeout_seconds=_TIMEOUT_SECONDS)
    if not threads.isdecimal() or threads == "0":
        raise CannotProbe(f"torch's number of threads is {threads[:80]!r}")
    return Fact(threads, "probed: torch's number of threads")


def _of_cpu_code(probe: Probe) -> Probe:
    """Return a probe of what matters to kernels for the CPU only, which GPU graphs do not hold."""

    def only_without_gpu(context: ProbeContext) -> Fact:
        if context.gpu_arch != ABSENT:
            raise ComponentAbsent("graphs for a GPU hold no kernels for the CPU")
        return probe(context)

    return only_without_gpu


CPU_CODE_VALUES: Mapping[str, IdentityValue] = {
    **CPU_VALUES,
    "aten_cpu_capability": IdentityValue(
        _aten_cpu_capability, "set ATEN_CPU_CAPABILITY alike on both nodes"
    ),
    "cpp_threads": IdentityValue(
        _of_cpu_code(_threads),
        "give both processes the same OMP_NUM_THREADS and number of CPUs",
    ),
    "cpp_torch_path": IdentityValue(_of_cpu_code(path_probe("torch")), SAME_PLACE),
    "cpp_python_include": IdentityValue(_of_cpu_code(python_include), SAME_PLACE),
    "cpp_compiler": IdentityValue(_of_cpu_code(cxx_version), SAME_IMAGE),
}
