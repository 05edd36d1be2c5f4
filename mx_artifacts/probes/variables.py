"""Makes probes of variables that change what compilers do, if the effect is part of a cache's key.

ninja compares command lines as they are spelled, so a variable that adds to one is compared as it
is. Architectures are compared as the compiler resolves them: a list that names only what the device
has anyway makes no difference, and a node without a GPU can compile for nodes that have one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from mx_artifacts.node.installed import CannotProbe
from mx_artifacts.probes.base import ABSENT, SAME_VARIABLES, Fact, IdentityValue, ProbeContext


def variables(names: Callable[[ProbeContext], Iterable[str]]) -> IdentityValue:
    """Return the identity value that has those of the variables that are set, as they are."""

    def probe(context: ProbeContext) -> Fact:
        found = {n: value for n in sorted(names(context)) if (value := context.env.get(n))}
        if not found:
            return Fact(ABSENT, "probed: no variable adds to command lines")
        return Fact("; ".join(f"{n}={v}" for n, v in found.items()), ", ".join(found))

    return IdentityValue(probe, SAME_VARIABLES)


DEVICE_ARCH = re.compile(r"sm_?(\d+)(\d)([a-z]?)")
"""An architecture as compilers write it: sm_90a."""
LISTED_ARCH = re.compile(r"(\d+)\.(\d)([a-z]?)")
"""An architecture as torch's and FlashInfer's lists have it: 9.0a."""


def architectures(
    variable: str, form: re.Pattern[str], suffix: Callable[[int, int], str]
) -> IdentityValue:
    """Return the identity value of the architectures in a variable, else of the device's.

    Args:
        form: how the variable writes one; its groups are major, minor and suffix.
        suffix: which one the compiler adds to (major, minor) where none is stated.
    """

    def probe(context: ProbeContext) -> Fact:
        listed = context.env.get(variable, "")
        parts, origin = (listed.split(), variable) if listed else ([context.gpu_arch], "gpu_arch")
        pattern = form if listed else DEVICE_ARCH
        matches = [pattern.fullmatch(part) for part in parts]
        if not listed and not matches[0]:
            return Fact(context.gpu_arch, "as gpu_arch")  # ROCm's, or none
        archs = set()
        for part, match in zip(parts, matches, strict=True):
            if match is None:
                raise CannotProbe(f"{variable} has {part!r}, which is no architecture")
            major, minor = int(match[1]), int(match[2])
            archs.add(f"{major}{minor}{match[3] or suffix(major, minor)}")
        return Fact("_".join(sorted(archs)), origin if listed else f"probed: from {origin}")

    return IdentityValue(probe, f"set {variable} alike on both nodes")
