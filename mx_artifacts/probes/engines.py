"""Inference engines: what they are called, which is installed here, and the torch it runs on."""

from __future__ import annotations

from collections.abc import Mapping

from mx_artifacts.core.identity import BackendFramework
from mx_artifacts.node.installed import CannotProbe, ComponentAbsent, is_installed, torch_build
from mx_artifacts.probes.base import ABSENT, Fact, ProbeContext
from mx_artifacts.probes.packages import version_probe

ENGINE_NAMES: Mapping[BackendFramework, str] = {
    BackendFramework.UNKNOWN: ABSENT,
    BackendFramework.VLLM: "vllm",
    BackendFramework.SGLANG: "sglang",
    BackendFramework.TRT_LLM: "trt_llm",
}
ENGINE_DISTRIBUTIONS: Mapping[BackendFramework, str] = {
    BackendFramework.VLLM: "vllm",
    BackendFramework.SGLANG: "sglang",
    BackendFramework.TRT_LLM: "tensorrt-llm",
}
"""The package that each engine is installed as."""


def parse_engine(text: str) -> BackendFramework:
    """Return the engine with this name; case does not matter, nor `-` for `_`.

    Raises:
        ValueError: with the names that there are.
    """
    wanted = text.strip().lower().replace("-", "_")
    for engine, name in ENGINE_NAMES.items():
        if name == wanted:
            return engine
    raise ValueError(f"one of {', '.join(ENGINE_NAMES.values())}")


def installed_engines() -> list[BackendFramework]:
    """Return the engines whose package is installed here."""
    return [each for each, name in ENGINE_DISTRIBUTIONS.items() if is_installed(name)]


def engine_here() -> BackendFramework:
    """Return the engine that runs here as far as is known: the only one installed, or UNKNOWN.

    For a caller that has no identity, whose `backend_framework` is found by the same rule.
    """
    installed = installed_engines()
    return installed[0] if len(installed) == 1 else BackendFramework.UNKNOWN


# --- probes --------------------------------------------------------------------------------------


def backend_framework(context: ProbeContext) -> Fact:
    """Return the engine that is installed, if it is the only one."""
    found = [ENGINE_NAMES[engine] for engine in installed_engines()]
    if len(found) > 1:
        raise CannotProbe(f"{' and '.join(found)} are both installed")
    if not found:
        return Fact(ABSENT, "probed: no engine is installed")
    return Fact(found[0], "probed: the only engine installed")


def backend_framework_version(context: ProbeContext) -> Fact:
    """Return the version of the engine that runs."""
    if context.framework == ABSENT:
        raise ComponentAbsent("no engine is installed")
    if context.framework not in ENGINE_NAMES.values():
        raise CannotProbe("the engine is not known")
    return version_probe(ENGINE_DISTRIBUTIONS[parse_engine(context.framework)])(context)


def torch_version(context: ProbeContext) -> Fact:
    """Return torch's version with its build, such as 2.8.0+cu128."""
    return Fact(torch_build().version, "probed: torch/version.py")


def cuda_version(context: ProbeContext) -> Fact:
    """Return the toolkit that torch was built for; another vendor's has a prefix."""
    build = torch_build()
    if not build.toolkit:
        return Fact(ABSENT, "probed: torch is a CPU-only build")
    return Fact(build.toolkit, "probed: torch/version.py")


def reference_cuda_version(context: ProbeContext) -> Fact:
    """Return the CUDA version alone, which is all that the reference's loaders look for."""
    build = torch_build()
    if build.accelerator != "cuda":
        return Fact(ABSENT, f"probed: torch is built for {build.accelerator}")
    return Fact(build.toolkit, "probed: torch/version.py")
