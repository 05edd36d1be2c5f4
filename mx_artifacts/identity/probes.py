"""The probes: for each identity field or extra parameter, how its value is found on this node."""

from __future__ import annotations

import platform
import re
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

from mx_artifacts.identity import compile_settings, cute_dsl_stack, toolchain
from mx_artifacts.identity.facts import Fact, Probe, ProbeContext
from mx_artifacts.identity.toolchain import TOOL_TIMEOUT_SECONDS, package_path
from mx_artifacts.kinds.base import ABSENT
from mx_artifacts.kinds.engines import (
    ENGINE_DISTRIBUTIONS,
    ENGINE_NAMES,
    installed_engines,
    parse_engine,
)
from mx_artifacts.node import cuda_driver
from mx_artifacts.node.installed import (
    CannotProbe,
    ComponentAbsent,
    deep_gemm_key,
    distribution_version,
    reference_deep_gemm_key,
    run_for_json,
    torch_build,
    triton_build,
)

# --- the engine ----------------------------------------------------------------------------------


def _backend_framework(context: ProbeContext) -> Fact:
    found = [ENGINE_NAMES[engine] for engine in installed_engines()]
    if len(found) > 1:
        raise CannotProbe(f"{' and '.join(found)} are both installed")
    if not found:
        return Fact(ABSENT, "probed: no engine is installed")
    return Fact(found[0], "probed: the only engine installed")


def _backend_framework_version(context: ProbeContext) -> Fact:
    if context.framework == ABSENT:
        raise ComponentAbsent("no engine is installed")
    if context.framework not in ENGINE_NAMES.values():
        raise CannotProbe("the engine is not known")
    return _distribution(ENGINE_DISTRIBUTIONS[parse_engine(context.framework)])(context)


# --- libraries and tools -------------------------------------------------------------------------


def _distribution(name: str) -> Probe:
    return lambda context: Fact(distribution_version(name), f"probed: installed {name}")


def _torch_version(context: ProbeContext) -> Fact:
    return Fact(torch_build().version, "probed: torch/version.py")


def _cuda_version(context: ProbeContext) -> Fact:
    build = torch_build()
    if not build.toolkit:
        return Fact(ABSENT, "probed: torch is a CPU-only build")
    return Fact(build.toolkit, "probed: torch/version.py")


def _triton_version(context: ProbeContext) -> Fact:
    return Fact(triton_build(context.env).version, "probed: triton.__version__")


def _triton_key(context: ProbeContext) -> Fact:
    return Fact(triton_build(context.env).key, "probed: triton's triton_key()")


def _deep_gemm_jit_key(context: ProbeContext) -> Fact:
    return Fact(deep_gemm_key(), "probed: digest of deep_gemm/include")


# --- the GPU -------------------------------------------------------------------------------------


def _gpu(key: str) -> Probe:
    def probe(context: ProbeContext) -> Fact:
        if context.cpu_build_has_no_gpu_code and torch_build().accelerator == "cpu":
            raise ComponentAbsent("torch is a CPU-only build")
        if context.cpu_build_has_no_gpu_code and context.gpu_arch == ABSENT:
            raise ComponentAbsent("there is no GPU code")
        origin = f"CUDA driver, device {context.device_index}"
        try:
            device = run_for_json(
                (sys.executable, "-I", cuda_driver.__file__, str(context.device_index)),
                context.env,
                timeout_seconds=TOOL_TIMEOUT_SECONDS,
            )
        except CannotProbe as error:
            raise CannotProbe(f"{origin}: {error}") from error
        value = device.get(key) if isinstance(device, dict) else None
        return Fact(str(value or ""), f"probed: {origin}")

    return probe


# --- the host ------------------------------------------------------------------------------------

CPU_INFO = Path("/proc/cpuinfo")
_MODEL_LINES = (  # x86, then Arm
    *("vendor_id", "cpu family", "model", "stepping", "model name"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
)
# Of x86's flags those from which -march=native chooses instructions; the kernel adds others of its
# own, which differ from kernel to kernel on one CPU. Arm's "Features" are instructions all.
_INSTRUCTION_FLAGS = re.compile(
    r"mmx|mmxext|3dnow.*|sse.*|pni|ssse3|avx.*|fma4?|f16c|xop|tbm|bmi\d|abm|popcnt|movbe|adx|gfni"
    r"|amx.*|v?aes|v?pclmulqdq|sha.*|sm3|sm4|cmov|cx16|lahf_lm|fsgsbase|rdrand|rdseed|rdpid"
    r"|clflush.*|clwb|clzero|xsave.*|fxsr|3dnowprefetch|serialize|waitpkg|movdir.*|enqcmd|cldemote"
)


def _cpu_lines(text: str, name: str) -> list[str]:
    """Return the different values that the processors state for `name`, in order."""
    found = re.findall(rf"^{re.escape(name)}[ \t]*:[ \t]*(.*?)[ \t]*$", text, re.MULTILINE)
    return list(dict.fromkeys(found))


def cpu_model(text: str) -> str:
    """Return the CPU's model from the text of /proc/cpuinfo; all of them where cores differ."""
    values = {name: "/".join(_cpu_lines(text, name)) for name in _MODEL_LINES}
    return ", ".join(f"{name} {value}" for name, value in values.items() if value)


def cpu_flags(text: str) -> str:
    """Return the instruction sets that every core has, sorted, from the text of /proc/cpuinfo."""
    x86 = [frozenset(line.split()) for line in _cpu_lines(text, "flags")]
    arm = [frozenset(line.split()) for line in _cpu_lines(text, "Features")]
    common = frozenset.intersection(*(x86 or arm)) if x86 or arm else frozenset()
    return " ".join(sorted(f for f in common if not x86 or _INSTRUCTION_FLAGS.fullmatch(f)))


def _from_cpu_info(read: Callable[[str], str]) -> Probe:
    def probe(context: ProbeContext) -> Fact:
        try:
            value = read(CPU_INFO.read_text(errors="replace"))
        except OSError as error:
            raise CannotProbe(f"{CPU_INFO}: {error}") from error
        return Fact(value, f"probed: {CPU_INFO}")

    return probe


def _aten_cpu_capability(context: ProbeContext) -> Fact:
    # Unset, torch takes what the CPU has; "default" is another thing, no vectors at all.
    value = context.env.get("ATEN_CPU_CAPABILITY")
    return Fact(value, "ATEN_CPU_CAPABILITY") if value else Fact("auto", "probed: not set")


def _host(value: Callable[[], str], origin: str) -> Probe:
    return lambda context: Fact(value(), f"probed: {origin}")


PROBES: Mapping[str, Probe] = {
    "backend_framework": _backend_framework,
    "backend_framework_version": _backend_framework_version,
    "torch_version": _torch_version,
    "cuda_version": _cuda_version,
    "triton_version": _triton_version,
    "triton_key": _triton_key,
    "deep_gemm_jit_key": _deep_gemm_jit_key,
    "tilelang_version": _distribution("tilelang"),
    "cutlass_dsl_version": _distribution("nvidia-cutlass-dsl"),
    "flashinfer_version": _distribution("flashinfer-python"),
    "tvm_ffi_version": _distribution("apache-tvm-ffi"),
    "ninja_version": toolchain.ninja_version,
    "nvcc_version": toolchain.nvcc_version,
    "cxx_version": toolchain.cxx_version,
    "cuda_home": toolchain.cuda_home,
    "flashinfer_path": package_path("flashinfer"),
    "tvm_ffi_path": package_path("tvm_ffi"),
    "deep_gemm_include_dir": toolchain.deep_gemm_include_dir,
    "cute_dsl_libs": toolchain.cute_dsl_libs,
    "cute_dsl_stack": cute_dsl_stack.cute_dsl_stack,
    "cute_dsl_flavor": cute_dsl_stack.cute_dsl_flavor,
    "cute_dsl_arch": compile_settings.cute_dsl_arch,
    "cute_dsl_settings": compile_settings.cute_dsl_settings,
    "flashinfer_archs": compile_settings.flashinfer_archs,
    "flashinfer_settings": compile_settings.flashinfer_settings,
    "tvm_ffi_archs": compile_settings.tvm_ffi_archs,
    "tvm_ffi_settings": compile_settings.tvm_ffi_settings,
    "python_include": compile_settings.python_include,
    "cudnn_frontend_version": _distribution("nvidia-cudnn-frontend"),
    "site_packages": toolchain.site_packages,
    "cpp_threads": toolchain.cpp_threads,
    "cpp_torch_path": toolchain.cpp_torch_path,
    "cpp_python_include": toolchain.cpp_python_include,
    "cpp_compiler": toolchain.cpp_compiler,
    "gpu_arch": _gpu("arch"),
    "gpu_name": _gpu("name"),
    "gpu_sm_count": _gpu("sm_count"),
    "machine": _host(platform.machine, "uname"),
    "python_abi": _host(lambda: str(sysconfig.get_config_var("SOABI") or ""), "sysconfig SOABI"),
    "libc": _host(lambda: "-".join(filter(None, platform.libc_ver())), "confstr"),
    "cpu_model": _from_cpu_info(cpu_model),
    "cpu_flags": _from_cpu_info(cpu_flags),
    "aten_cpu_capability": _aten_cpu_capability,
}


def _reference_cuda_version(context: ProbeContext) -> Fact:
    build = torch_build()
    if build.accelerator != "cuda":
        return Fact(ABSENT, f"probed: torch is built for {build.accelerator}")
    return Fact(build.toolkit, "probed: torch/version.py")


REFERENCE_PROBES: Mapping[str, Probe] = {
    **PROBES,
    "cuda_version": _reference_cuda_version,
    "triton_key": lambda context: Fact(
        triton_build(context.env).reference_key, "probed: triton.runtime.cache.triton_key()"
    ),
    "deep_gemm_jit_key": lambda context: Fact(
        reference_deep_gemm_key(context.env), "probed: deep_gemm.jit.compiler"
    ),
}
"""As the reference's loaders find the values (facts of modelexpress 0.7.0)."""


def probe(name: str, context: ProbeContext, probes: Mapping[str, Probe] = PROBES) -> Fact:
    """Return the value of the field or extra parameter `name`, never an empty one.

    Raises:
        CannotProbe, ComponentAbsent
    """
    if name not in probes:
        raise CannotProbe("nothing here knows how to find it")
    fact = probes[name](context)
    if not fact.value.strip():
        raise CannotProbe(f"{fact.origin.removeprefix('probed: ')} is empty")
    return fact
