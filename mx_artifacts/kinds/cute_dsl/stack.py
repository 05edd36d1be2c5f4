"""Probes of the installed CuTe DSL: its build, its flavor, and the factors of its cache key."""

from __future__ import annotations

import json
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib import metadata

from mx_artifacts.node.installed import CannotProbe, ComponentAbsent, package_directory
from mx_artifacts.probes.base import SAME_PLACE, Fact, IdentityValue, ProbeContext
from mx_artifacts.probes.gpu import ask_driver
from mx_artifacts.probes.host import site_packages
from mx_artifacts.probes.packages import package_version, path_probe
from mx_artifacts.probes.variables import DEVICE_ARCH, architectures, variables

_CUTE_DSL = "nvidia-cutlass-dsl"
_ALSO = frozenset({"torch", "apache-tvm-ffi"})
_DIGEST_LENGTH = 12  # tells builds apart; FlashInfer itself compares all of it


def cute_dsl_stack(context: ProbeContext) -> Fact:
    """Return what FlashInfer compares of the stack that compiled its CuTe kernels, and autotuned.

    As flashinfer/jit/cute_dsl_core.py: _get_cute_dsl_version, shortened. A wheel's RECORD differs
    between two installers, or with byte-compiling, although the code is the same.
    """
    stack: set[str] = set()
    for distribution in metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name in _ALSO or name.startswith(_CUTE_DSL):
            files = ("RECORD", "direct_url.json")
            record = json.dumps([distribution.read_text(file) for file in files]).encode()
            digest = sha256(record).hexdigest()[:_DIGEST_LENGTH]
            stack.add(f"{name} {distribution.version} {digest}")
    if not any(part.startswith(_CUTE_DSL) for part in stack):
        raise ComponentAbsent(f"{_CUTE_DSL} is not installed")
    python = (str(sys.implementation.cache_tag), str(sysconfig.get_config_var("SOABI")))
    return Fact("; ".join((*python, *sorted(stack))), "probed: RECORD of each wheel of its stack")


_FLAVOR = re.compile(r"_cutlass_ir\.cu(\d+)\..*\.so")


def cute_dsl_flavor(context: ProbeContext) -> Fact:
    """Return which of the compilers installed together the DSL loads, by the driver's version.

    As cutlass/_mlir/_mlir_libs/__init__.py: the newest that the driver can run; without a driver,
    the newest.
    """
    libraries = package_directory("cutlass") / "_mlir" / "_mlir_libs"
    matches = map(_FLAVOR.fullmatch, (path.name for path in libraries.glob("_cutlass_ir.cu*")))
    flavors = sorted(int(match[1]) for match in matches if match)
    if not flavors:
        raise ComponentAbsent(f"{libraries} has one compiler for all drivers")
    try:
        driver = ask_driver(context, "driver")
    except CannotProbe:
        return Fact(f"cu{flavors[-1]}", "probed: the newest installed, without a driver")
    major = driver["cuda_major"] if isinstance(driver, dict) else 0
    fitting = [flavor for flavor in flavors if flavor <= major]
    if not fitting:
        raise CannotProbe(f"the driver is for CUDA {major}, and none of {flavors} can run")
    return Fact(f"cu{fitting[-1]}", f"probed: the driver is for CUDA {major}")


_RUNTIME_LIBRARY = "libcute_dsl_runtime.so"
_DISTRIBUTIONS = (_CUTE_DSL, f"{_CUTE_DSL}-libs-base", f"{_CUTE_DSL}-libs-cu13")


def cute_dsl_libs(context: ProbeContext) -> Fact:
    """Return the path of the DSL's runtime library, which its key has; CUTE_DSL_LIBS pins it."""
    if pinned := context.env.get("CUTE_DSL_LIBS"):
        return Fact(pinned, "CUTE_DSL_LIBS")
    for name in _DISTRIBUTIONS:
        try:
            files = metadata.distribution(name).files or ()
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == _RUNTIME_LIBRARY:
                return Fact(str(file.locate()), f"probed: files of {name}")
    # Not listed where it was expected; the package lies beside it in any case.
    return path_probe("cutlass")(context)


_PREFIX = "CUTE_DSL_"
# cutlass/base_dsl/env_manager.py, 4.8.1: affects_compile is false; or an identity value by itself.
_NOT_FOR_CODE = re.compile(
    r"(LIBS|ARCH|CACHE_DIR|DUMP_DIR|NO_CACHE|DISABLE_FILE_CACHING|JIT_.*|LOG_.*|PRINT_.*|KEEP.*"
    r"|SHOW_STACKTRACE|FILTER_STACKTRACE|WARNINGS_IGNORE|ENABLE_OPTIMIZATION_WARNINGS)"
)


def _settings(context: ProbeContext) -> Iterator[str]:
    for name in context.env:
        if name.startswith(_PREFIX) and not _NOT_FOR_CODE.fullmatch(name[len(_PREFIX) :]):
            yield name


def cute_suffix(major: int, minor: int) -> str:
    """Return what the DSL adds to an architecture: from Hopper on, that one's own instructions."""
    return "a" if major >= 9 else ""


_FLAVOR_AND_ARCH: Mapping[str, IdentityValue] = {
    "cute_dsl_flavor": IdentityValue(
        cute_dsl_flavor,
        "install one flavor of nvidia-cutlass-dsl, or drivers for the same CUDA",
    ),
    "cute_dsl_arch": architectures("CUTE_DSL_ARCH", DEVICE_ARCH, cute_suffix),
}
CUTE_DSL_VALUES: Mapping[str, IdentityValue] = {
    **_FLAVOR_AND_ARCH,
    "cutlass_dsl_version": package_version(_CUTE_DSL),
    "cute_dsl_libs": IdentityValue(cute_dsl_libs, "set CUTE_DSL_LIBS here to what the source has"),
    "cute_dsl_settings": variables(_settings),
    "site_packages": IdentityValue(site_packages, SAME_PLACE),
}
"""For the DSL's own file cache."""
CUTE_KERNEL_VALUES: Mapping[str, IdentityValue] = {
    **_FLAVOR_AND_ARCH,
    "cute_dsl_stack": IdentityValue(
        cute_dsl_stack,
        "install torch, apache-tvm-ffi and nvidia-cutlass-dsl by the same installer on both nodes, "
        "as one container image does; FlashInfer compares each wheel's RECORD",
    ),
}
"""For kernels that FlashInfer compiles with the DSL."""
