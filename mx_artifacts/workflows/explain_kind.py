"""Tells which sources a fetch of a kind would use here, and what keeps it from the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mx_artifacts import settings
from mx_artifacts.artifacts.factories import transfer_of_kind
from mx_artifacts.artifacts.target.discover import target_of
from mx_artifacts.artifacts.target.explain import Candidate, Explanation, explain_sources
from mx_artifacts.artifacts.target.suitability import (
    ANY_SOURCE,
    RootObjection,
    SourceWanted,
    no_objection,
)
from mx_artifacts.artifacts.transport_labels import transports_of
from mx_artifacts.client.central import CentralClient
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.identity.identify import ProbedIdentity
from mx_artifacts.identity.values import advice_for
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.workflows.selected_kind import SelectedKind


def explain_kind(
    client: CentralClient,
    selected: SelectedKind,
    probed: ProbedIdentity,
    wanted: SourceWanted = ANY_SOURCE,
) -> Explanation:
    """Compare this node with the ready sources of the kind, as a fetch would; change nothing.

    Where `wanted` names no accelerator, that of the identity counts. A root for which nothing says
    where it is keeps no source away.

    Raises:
        ConfigurationError: the quarantine cannot be read.
        MetadataError: the central server does not answer.
    """
    wanted = dataclasses.replace(wanted, accelerator=wanted.accelerator or probed.accelerator)
    target = target_of(probed.identity, wanted)
    return explain_sources(
        client, dataclasses.replace(target, root_objection=_root_objection(selected))
    )


def _root_objection(selected: SelectedKind) -> RootObjection:
    """Return what a fetch into this node's roots objects to sources."""
    try:
        return transfer_of_kind(
            selected.kind,
            bundle_root=settings.BUNDLE_ROOT.read(),
            roots=selected.stated_roots,
            framework=selected.engine,
        ).root_objection
    except ConfigurationError:  # `roots_here` has it
        return no_objection


@dataclass(frozen=True)
class FieldDifference:
    """A field in which a source differs from this node; "" is a value that is not stated."""

    field: str
    here: str
    there: str
    advice: str


def field_differences(kind: CacheKind, candidate: Candidate) -> list[FieldDifference]:
    """Return in which fields a source differs, each with what to do about it."""
    found = []
    for name, (here, there) in candidate.differences.items():
        field, advice = name.removeprefix("extra_parameters."), advice_for(kind, name)
        if not there and field in kind.strict_parameters:
            advice = "it was published under the reference's profile; try --profile reference"
        found.append(FieldDifference(field, here, there, advice))
    return found


def needs_nixl(candidate: Candidate) -> bool:
    """Return whether a source can be read by NIXL only, which MX_TRANSPORT does not allow here."""
    only_nixl = transports_of(candidate.stored.record.topology) == (settings.NIXL,)
    return only_nixl and settings.TRANSPORT.read() != settings.NIXL


@dataclass(frozen=True)
class RootHere:
    """A root of a kind on this node.

    Attributes:
        label: what the root is called in messages.
        path: where it is; None where nothing says so.
        decided_by: the option or variable that says where it is.
        is_off: it is neither packed nor installed, since its path is not stated.
        error: why it has no path.
    """

    label: str
    path: Path | None = None
    decided_by: str = ""
    is_off: bool = False
    error: ConfigurationError | None = None


def roots_here(selected: SelectedKind) -> list[RootHere]:
    """Return the kind's roots on this node, those that nothing says the place of too."""
    found = []
    for rule in selected.kind.roots:
        label = selected.kind.root_label(rule.name)
        try:
            path, decided_by = selected.locate(rule)
        except ConfigurationError as error:  # which is no reason not to compare identities
            found.append(RootHere(label, error=error))
        else:
            found.append(RootHere(label, path, decided_by, selected.is_off(rule)))
    return found


def unlike_roots(
    kind: CacheKind, candidate: Candidate, here: Sequence[RootHere]
) -> list[tuple[RootHere, str]]:
    """Return those of the roots `here` that are elsewhere at the source, and where."""
    by_label = {root.label: root for root in here if root.path is not None}
    found = []
    for name, there in candidate.roots.items():
        root = by_label.get(kind.root_label(name))
        if root is not None and str(root.path) != there:
            found.append((root, there))
    return found
