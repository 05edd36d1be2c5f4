"""The label in which a source lists the transports by which it can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mx_artifacts.settings import NIXL

TRANSPORTS_LABEL = "mx_artifacts.transports"


def transport_labels(names: Sequence[str]) -> dict[str, str]:
    """Return what a source that can be read by these transports announces."""
    return {TRANSPORTS_LABEL: ",".join(names)}


def transports_of(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return by what a source can be read; one that does not say so is one of the reference."""
    return tuple(filter(None, labels.get(TRANSPORTS_LABEL, NIXL).split(",")))
