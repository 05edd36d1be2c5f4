"""Why a source would be used or not: this node's identity beside each candidate's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mx_artifacts.artifacts.discover import MAX_EXPLAINED
from mx_artifacts.artifacts.root_labels import LABEL
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.compatibility import (
    accelerators_compatible,
    identity_differences,
    same_kind,
)
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import SourceQuery, SourceStatus, StoredWorker

MAX_LISTED = 512
"""Records looked at to find those of the kind, since the server cannot filter by it."""


@dataclass(frozen=True)
class Candidate:
    """A ready source of the same kind. `differences` maps a field to (ours, theirs)."""

    stored: StoredWorker
    differences: Mapping[str, tuple[str, str]]

    @property
    def fits(self) -> bool:
        """Whether a fetch would use it, as far as identities and accelerators go."""
        return not self.differences

    @property
    def roots(self) -> dict[str, str]:
        """The source's cache roots by name ("" is the primary one), as far as it tells."""
        return {
            label.removeprefix(LABEL).removeprefix("."): path
            for label, path in self.stored.record.topology.items()
            if label == LABEL or label.startswith(f"{LABEL}.")
        }


def explain_sources(
    client: CentralClient, identity: SourceIdentity, *, accelerator: str = ""
) -> list[Candidate]:
    """Return the ready sources of `identity`'s kind and model, the nearest first.

    Where nobody serves this model, those of any model. At most MAX_EXPLAINED.

    Raises:
        MetadataError: the central server does not answer.
    """
    for model_name in (identity.model_name, None):
        query = SourceQuery(status=SourceStatus.READY, model_name=model_name, limit=MAX_LISTED)
        candidates = [
            _compare(identity, stored, accelerator) for stored in _of_kind(client, identity, query)
        ]
        if candidates:
            candidates.sort(key=lambda each: len(each.differences))
            return candidates[:MAX_EXPLAINED]
    return []


def _of_kind(
    client: CentralClient, identity: SourceIdentity, query: SourceQuery
) -> Iterator[StoredWorker]:
    for ref in client.list_sources(query):
        stored = client.get_metadata(ref.mx_source_id, ref.worker_id)
        if stored is not None and same_kind(identity, stored.identity):
            yield stored


def _compare(identity: SourceIdentity, stored: StoredWorker, accelerator: str) -> Candidate:
    differences = identity_differences(identity, stored.identity)
    if not accelerators_compatible(accelerator, stored.record.accelerator):
        differences["accelerator"] = (accelerator, stored.record.accelerator)
    if stored.record.artifact is None:
        differences["artifact"] = ("wanted", "")
    return Candidate(stored, differences)
