"""Probes of the CuTe DSL as it is installed: which build of it, and which of its flavors runs."""

from __future__ import annotations

import json
import re
import sys
import sysconfig
from hashlib import sha256
from importlib import metadata

from mx_artifacts.identity.facts import Fact, ProbeContext
from mx_artifacts.identity.toolchain import TOOL_TIMEOUT_SECONDS
from mx_artifacts.node import cuda_driver
from mx_artifacts.node.installed import (
    CannotProbe,
    ComponentAbsent,
    package_directory,
    run_for_json,
)

_CUTE_DSL = "nvidia-cutlass-dsl"
_ALSO = frozenset({"torch", "apache-tvm-ffi"})
_DIGEST_LENGTH = 12  # tells builds apart; FlashInfer itself compares all of it


def cute_dsl_stack(context: ProbeContext) -> Fact:
    """What FlashInfer compares of the stack that compiled its CuTe kernels, and autotuned.

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
    """Which of the compilers that are installed together the DSL loads: by the driver's version.

    As cutlass/_mlir/_mlir_libs/__init__.py: the newest that the driver can run; without a driver,
    the newest.
    """
    libraries = package_directory("cutlass") / "_mlir" / "_mlir_libs"
    matches = map(_FLAVOR.fullmatch, (path.name for path in libraries.glob("_cutlass_ir.cu*")))
    flavors = sorted(int(match[1]) for match in matches if match)
    if not flavors:
        raise ComponentAbsent(f"{libraries} has one compiler for all drivers")
    try:
        driver = run_for_json(
            (sys.executable, "-I", cuda_driver.__file__, "driver"),
            context.env,
            timeout_seconds=TOOL_TIMEOUT_SECONDS,
        )
    except CannotProbe:
        return Fact(f"cu{flavors[-1]}", "probed: the newest installed, without a driver")
    major = driver["cuda_major"] if isinstance(driver, dict) else 0
    fitting = [flavor for flavor in flavors if flavor <= major]
    if not fitting:
        raise CannotProbe(f"the driver is for CUDA {major}, and none of {flavors} can run")
    return Fact(f"cu{fitting[-1]}", f"probed: the driver is for CUDA {major}")
