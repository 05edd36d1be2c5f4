"""Probes of the host: processor, machine, C library, Python's binary interface."""

from __future__ import annotations

import platform
import re
import sysconfig
from collections.abc import Callable
from pathlib import Path

from mx_artifacts.node.installed import CannotProbe
from mx_artifacts.probes.base import Fact, IdentityValue, Probe, ProbeContext

SAME_CPU = (
    "its host code is for another CPU and cannot be used here; publish from a node like this one"
)

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


def machine(context: ProbeContext) -> Fact:
    """Return the kind of processor, such as x86_64."""
    return Fact(platform.machine(), "probed: uname")


def python_abi(context: ProbeContext) -> Fact:
    """Return which extension modules this Python loads."""
    return Fact(str(sysconfig.get_config_var("SOABI") or ""), "probed: sysconfig SOABI")


def libc(context: ProbeContext) -> Fact:
    """Return the C library and its version."""
    return Fact("-".join(filter(None, platform.libc_ver())), "probed: confstr")


def python_include(context: ProbeContext) -> Fact:
    """Return Python's include directory, which is on command lines whether or not it is needed."""
    return Fact(sysconfig.get_path("include"), "probed: sysconfig include")


def site_packages(context: ProbeContext) -> Fact:
    """Return where packages, and so the sources of kernels in them, are installed."""
    return Fact(sysconfig.get_path("purelib"), "probed: sysconfig purelib")


CPU_VALUES = {
    "cpu_model": IdentityValue(_from_cpu_info(cpu_model), SAME_CPU),
    "cpu_flags": IdentityValue(_from_cpu_info(cpu_flags), SAME_CPU),
}
"""For kinds whose host code is built for the very processor (-march=native)."""
