"""Why a source would be used or not: this node's identity beside each candidate's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mx_artifacts.artifacts.labels import ROOT_LABEL
from mx_artifacts.artifacts.target.discover import MAX_EXPLAINED
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.compatibility import (
    accelerators_compatible,
    identity_differences,
    same_kind,
)
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import SourceQuery, SourceStatus, StoredWorker

_NOTHING: Mapping[str, str] = MappingProxyType({})
MAX_LISTED = 512
"""Records looked at to find those of the kind, since the server cannot filter by it."""


@dataclass(frozen=True)
class Candidate:
    """A ready source of the same kind.

    `differences` maps a field to (ours, theirs); `refusal` says why this node does not take its
    artifact, whatever the identities, or is "".
    """

    stored: StoredWorker
    differences: Mapping[str, tuple[str, str]]
    refusal: str = ""

    @property
    def fits(self) -> bool:
        """Whether a fetch would use it, as far as identities, accelerators and refusals go."""
        return not self.differences and not self.refusal

    @property
    def roots(self) -> dict[str, str]:
        """The source's cache roots by name ("" is the primary one), as far as it tells."""
        return {
            label.removeprefix(ROOT_LABEL).removeprefix("."): path
            for label, path in self.stored.record.topology.items()
            if label == ROOT_LABEL or label.startswith(f"{ROOT_LABEL}.")
        }


def explain_sources(
    client: CentralClient,
    identity: SourceIdentity,
    *,
    accelerator: str = "",
    refused: Mapping[str, str] = _NOTHING,
) -> list[Candidate]:
    """Return the ready sources of `identity`'s kind and model, the nearest first.

    Where nobody serves this model, those of any model. At most MAX_EXPLAINED. `refused` maps the
    ids of artifacts that this node must not take to why.

    Raises:
        MetadataError: the central server does not answer.
    """
    for model_name in (identity.model_name, None):
        query = SourceQuery(status=SourceStatus.READY, model_name=model_name, limit=MAX_LISTED)
        candidates = [
            _compare(identity, stored, accelerator, refused)
            for stored in _of_kind(client, identity, query)
        ]
        if candidates:
            candidates.sort(key=lambda each: (len(each.differences), bool(each.refusal)))
            return candidates[:MAX_EXPLAINED]
    return []


def _of_kind(
    client: CentralClient, identity: SourceIdentity, query: SourceQuery
) -> Iterator[StoredWorker]:
    for ref in client.list_sources(query):
        stored = client.get_metadata(ref.mx_source_id, ref.worker_id)
        if stored is not None and same_kind(identity, stored.identity):
            yield stored


def _compare(
    identity: SourceIdentity, stored: StoredWorker, accelerator: str, refused: Mapping[str, str]
) -> Candidate:
    differences = identity_differences(identity, stored.identity)
    if not accelerators_compatible(accelerator, stored.record.accelerator):
        differences["accelerator"] = (accelerator, stored.record.accelerator)
    artifact = stored.record.artifact
    if artifact is None:
        differences["artifact"] = ("wanted", "")
    refusal = refused.get(artifact.artifact_id, "") if artifact is not None else ""
    return Candidate(stored, differences, refusal)
