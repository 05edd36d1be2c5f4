"""Decides which sources a target may use, and says why it may not use the others."""

from __future__ import annotations

from mx_artifacts.core.identity import (
    KIND_PARAMETER,
    SourceIdentity,
    framework_name,
    lowered_extras,
    source_type_name,
)

ACCELERATORS = ("cuda", "rocm", "xpu", "cpu")
"""The families that a node can find out about itself."""


def accelerators_compatible(target: str, source: str) -> bool:
    """Return whether a target may use a source, by their accelerator families ("cuda", "xpu").

    Empty means unknown and is accepted, as metadata from before the field existed has it.
    Compared without regard to case, as identities are. "rocm" and "cuda" differ: the reference
    says "cuda" on AMD too, and so does a node of ours that pairs with it, since it states
    gpu_arch as the reference does (sm94; docs/protocol.md).
    """
    return not target or not source or target.lower() == source.lower()


def same_kind(ours: SourceIdentity, theirs: SourceIdentity) -> bool:
    """Return whether both are identities of the same cache kind; other fields may differ."""
    return ours.mx_source_type == theirs.mx_source_type and ours.extra_parameters.get(
        KIND_PARAMETER
    ) == theirs.extra_parameters.get(KIND_PARAMETER)


def identity_differences(
    ours: SourceIdentity, theirs: SourceIdentity
) -> dict[str, tuple[str, str]]:
    """Return {field: (ours, theirs)} of the fields that give two identities different ids.

    Extra parameters are named `extra_parameters.KEY`; a value that is not stated is "", and one of
    an enum its name in lower case.
    """

    def flat(identity: SourceIdentity) -> dict[str, str]:
        values = identity.as_dict()
        extras = values.pop("extra_parameters")
        flattened = {name: str(value) for name, value in values.items()}
        flattened["mx_source_type"] = source_type_name(identity.mx_source_type)
        flattened["backend_framework"] = framework_name(identity.backend_framework)
        lowered = lowered_extras(extras)
        flattened |= {f"extra_parameters.{key}": value for key, value in lowered.items()}
        return flattened

    mine, other = flat(ours), flat(theirs)
    return {
        name: (mine.get(name, ""), other.get(name, ""))
        for name in sorted(mine.keys() | other.keys())
        if mine.get(name, "").lower() != other.get(name, "").lower()
    }
