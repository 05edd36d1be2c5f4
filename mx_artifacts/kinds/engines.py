"""Inference engines: what they are called, and which of them is installed here."""

from __future__ import annotations

from collections.abc import Mapping

from mx_artifacts.core.identity import BackendFramework
from mx_artifacts.node.installed import is_installed

NO_ENGINE = "none"
"""How users and identities state that no engine runs."""
ENGINE_NAMES: Mapping[BackendFramework, str] = {
    BackendFramework.UNKNOWN: NO_ENGINE,
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
    """Return the engine that runs here as far as can be told: the only one installed, or UNKNOWN.

    For a caller that has no identity, whose `backend_framework` is found by the same rule.
    """
    installed = installed_engines()
    return installed[0] if len(installed) == 1 else BackendFramework.UNKNOWN
