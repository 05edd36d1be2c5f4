"""Run-time compatibility that is not part of the identity."""

from __future__ import annotations


def accelerators_compatible(target: str, source: str) -> bool:
    """Tell whether a target may use a source, by their accelerator families ("cuda", "xpu").

    Empty means unknown and is accepted, as metadata from before the field existed has it.
    Compared without regard to case, as identities are.
    """
    return not target or not source or target.lower() == source.lower()
