"""What a probe takes and returns, and the result for one value of an identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mx_artifacts.node.environment import Environment

ABSENT = "none"
"""The identity value of a component that is known not to be there. Unknown is an error instead."""


@dataclass(frozen=True)
class Fact:
    """A value and where it comes from ("probed: …", or the variable that has it), for messages."""

    value: str
    origin: str


@dataclass(frozen=True)
class ProbeContext:
    """What a probe may look at.

    Attributes:
        env: the process environment.
        device_index: the GPU that will run, as CUDA numbers it in this environment.
        framework: the engine, as in `engines.py: ENGINE_NAMES`, once known.
        gpu_arch: what the GPU code is for, once known; "none": there is none.
        cpu_build_has_no_gpu_code: a CPU-only torch rules out GPU code in this kind of cache.
    """

    env: Environment
    device_index: int = 0
    framework: str = ""
    gpu_arch: str = ""
    cpu_build_has_no_gpu_code: bool = False


Probe = Callable[[ProbeContext], Fact]
"""Finds a value on this node; imports nothing heavy, and asks in a child process what must be run.

Raises `CannotProbe` where the value cannot be determined, `ComponentAbsent` where the component
that it belongs to is known not to be there.
"""


@dataclass(frozen=True)
class IdentityValue:
    """What is known of one value of an identity: how it is found, and what to do where it differs.

    Attributes:
        probe: finds it on this node; None where only the user can state it.
        advice: what a user can do where two nodes differ in it; "" for the general advice.
        reference_probe: finds it as the reference's loaders do, where that is not the same.
    """

    probe: Probe | None = None
    advice: str = ""
    reference_probe: Probe | None = None


SAME_IMAGE = "run the same container image on both nodes"
"""Advice where another version, or another build, is installed."""
SAME_PLACE = "install it at the same path on both nodes, as one container image does"
"""Advice where paths enter the compiler's own key."""
SAME_VARIABLES = "set these variables alike on both nodes; they enter the compiler's own key"
"""Advice where variables of the environment enter it."""
