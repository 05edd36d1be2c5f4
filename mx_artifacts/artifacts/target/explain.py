"""Explains why a source would be used or not: compares this node's identity with each candidate's.

A listing is never cut before its sources are checked, because the server cannot filter by kind.
Only the number of described sources is limited.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from mx_artifacts.artifacts.labels import ROOT_LABEL
from mx_artifacts.artifacts.target.record_reader import RecordReader
from mx_artifacts.artifacts.target.suitability import Difference, Target, Verdict, label_of
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.compatibility import identity_differences, same_kind
from mx_artifacts.core.identity import (
    SourceIdentity,
    SourceType,
    compute_mx_source_id,
    source_type_name,
)
from mx_artifacts.core.sources import SourceQuery, SourceRef, SourceStatus, StoredWorker

MAX_EXPLAINED = 16
"""Maximum number of sources that are described: enough for a person, bounded for a fleet."""
MAX_OTHER_MODELS = 512
"""Maximum number of source ids of other models that are read, the newest first. They only help to
see a misspelt model name, and there may be as many of them as a cluster has models."""

READS_FOR_IDENTITY = 3
"""Maximum number of workers of one source id whose records are tried: some may have ended."""

KnownIdentities = MutableMapping[str, SourceIdentity]
"""Identities by source id, which is their hash: what was read once holds for ever."""


@dataclass(frozen=True)
class Candidate:
    """A ready source of the same kind, and what keeps this node from it."""

    stored: StoredWorker
    verdict: Verdict

    @property
    def fits(self) -> bool:
        """Whether a fetch uses it."""
        return self.verdict.fits

    @property
    def differences(self) -> Mapping[str, Difference]:
        """What differs, by field: here, there."""
        return self.verdict.differences

    @property
    def roots(self) -> dict[str, str]:
        """The cache roots that the source states, by name ("" is the primary one)."""
        return {
            label.removeprefix(ROOT_LABEL).removeprefix("."): path
            for label, path in self.stored.record.topology.items()
            if label == ROOT_LABEL or label.startswith(f"{ROOT_LABEL}.")
        }


@dataclass(frozen=True)
class Explanation:
    """The result of comparing the sources of a kind.

    Attributes:
        candidates: the ready sources of the model or, if there are none, of any model; the most
            similar first, at most MAX_EXPLAINED.
        passed_over: why sources were not compared, by source and worker id.
        not_looked_at: number of source ids that were not read, because there are more than a
            discovery reads.
    """

    candidates: tuple[Candidate, ...] = ()
    passed_over: Mapping[str, str] = field(default_factory=dict)
    not_looked_at: int = 0


def explain_sources(
    client: CentralClient,
    target: Target,
    *,
    other_models: bool = True,
    known: KnownIdentities | None = None,
) -> Explanation:
    """Compare the ready sources of the target's kind and model with what it looks for.

    With `other_models`, if no source serves the model, compare sources of any model. For each
    source id that is not in `known`, the record of one worker is read and added to `known`. For the
    most similar source ids, records of further workers are read, too.

    Raises:
        MetadataError: the central server does not answer.
    """
    search = _Search(client, target, {} if known is None else known)
    found = search.explain(search.listed(target.identity.model_name))
    if found.candidates or not other_models:
        return found
    sources = search.listed(None)
    looked_at = dict(islice(sources.items(), MAX_OTHER_MODELS))
    others = search.explain(looked_at)
    return Explanation(
        others.candidates,
        {**found.passed_over, **others.passed_over},
        not_looked_at=len(sources) - len(looked_at) + others.not_looked_at,
    )


class _Search:
    """One explanation in the making."""

    def __init__(self, client: CentralClient, target: Target, known: KnownIdentities) -> None:
        self._client = client
        self._target = target
        self._known = known
        self._records = RecordReader(client)
        self._stored: dict[str, StoredWorker | None] = {}
        self._passed_over: dict[str, str] = {}

    def listed(self, model_name: str | None) -> dict[str, list[SourceRef]]:
        """Return the ready workers of a model by source id, the newest first."""
        query = SourceQuery(status=SourceStatus.READY, model_name=model_name)
        by_source: dict[str, list[SourceRef]] = {}
        for ref in self._client.list_sources(query):
            by_source.setdefault(ref.mx_source_id, []).append(ref)
        return by_source

    def explain(self, sources: Mapping[str, Sequence[SourceRef]]) -> Explanation:
        """Compare those of `sources` that are of the target's kind, the nearest first."""
        distances: dict[str, int] = {}
        left = len(sources)
        for source_id, workers in sources.items():
            if not self._records.may_read:
                break
            left -= 1
            identity = self._identity_of(source_id, workers)
            if identity is not None and same_kind(self._target.identity, identity):
                distances[source_id] = len(identity_differences(self._target.identity, identity))
        candidates: list[Candidate] = []
        for source_id in sorted(distances, key=distances.__getitem__):
            room = MAX_EXPLAINED - len(candidates)
            is_same = distances[source_id] == 0
            candidates += self._compare(sources[source_id], room, until_one_fits=is_same)
        candidates.sort(key=lambda each: (len(each.differences), not each.fits))
        return Explanation(tuple(candidates[:MAX_EXPLAINED]), self._passed_over, left)

    def _identity_of(self, source_id: str, workers: Sequence[SourceRef]) -> SourceIdentity | None:
        """Return the identity of a source id, None where it can be compared with nothing."""
        if source_id == compute_mx_source_id(self._target.identity):
            return self._target.identity
        if source_id not in self._known:
            records = map(self._read, workers[:READS_FOR_IDENTITY])
            stored = next((each for each in records if each is not None), None)
            if stored is None:
                return None
            self._known[source_id] = stored.identity
        identity, label = self._known[source_id], label_of(workers[0])
        if not identity.model_name:
            self._passed_over[label] = "the central server does not tell its identity"
            return None
        if not isinstance(identity.mx_source_type, SourceType):
            what = source_type_name(identity.mx_source_type)
            self._passed_over[label] = f"it serves {what}, which this version does not know"
        return identity

    def _compare(
        self, workers: Sequence[SourceRef], room: int, *, until_one_fits: bool
    ) -> list[Candidate]:
        """Judge `room` of the workers; further ones only to find one that fits."""
        found: list[Candidate] = []
        for ref in workers:
            if len(found) >= room:
                if not until_one_fits or any(each.fits for each in found):
                    break
                if not self._target.judge_row(ref).fits:
                    continue
            stored = self._read(ref)
            if stored is None:
                continue
            candidate = Candidate(stored, self._target.judge(stored))
            if candidate.fits or len(found) < room:
                found.append(candidate)
        return found

    def _read(self, ref: SourceRef) -> StoredWorker | None:
        label = label_of(ref)
        if label not in self._stored:
            if not self._records.may_read:
                return None
            self._stored[label] = self._records.read(ref)
            if error := self._records.failures.get(label):
                self._passed_over[label] = f"its record could not be read: {error}"
        return self._stored[label]
