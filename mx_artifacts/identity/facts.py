"""What probes look at and what they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mx_artifacts.node.environment import Environment


@dataclass(frozen=True)
class Fact:
    """A value and where it comes from, for messages."""

    value: str
    origin: str


@dataclass(frozen=True)
class ProbeContext:
    """What probes may look at.

    Attributes:
        env: the process environment.
        device_index: the GPU that will run, as CUDA numbers it in this environment.
        framework: the engine, as `ENGINE_NAMES` has it, once known.
        gpu_arch: what the GPU code is for, once known; "none": there is none.
        cpu_build_has_no_gpu_code: a CPU-only torch rules out GPU code in this kind of cache.
    """

    env: Environment
    device_index: int = 0
    framework: str = ""
    gpu_arch: str = ""
    cpu_build_has_no_gpu_code: bool = False


Probe = Callable[[ProbeContext], Fact]
"""Raises CannotProbe, or ComponentAbsent where the component is known not to be there."""
