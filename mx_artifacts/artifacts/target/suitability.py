"""Decides whether a target may use a source; every fetch and every explanation uses this code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from mx_artifacts.artifacts.labels import ARTIFACT_LABEL
from mx_artifacts.core.compatibility import accelerators_compatible, identity_differences
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import SourceRef, SourceStatus, StoredWorker, WorkerRecord
from mx_artifacts.parsing import parse_address

RootObjection = Callable[[WorkerRecord], str]
"""Returns why the cache of a source that fits otherwise cannot be used in these roots, or ""."""
Difference = tuple[str, str]
"""A value here and there; "" is a value that is not stated."""

_WANTED_HINT = (
    "ask for what `mx-artifact sources list --format json` shows, or for no rank and artifact"
)
_HINTS = {
    "accelerator": "publish on a node of this accelerator family, or correct --accelerator",
    "worker_rank": _WANTED_HINT,
    "node_rank": _WANTED_HINT,
    "artifact_id": _WANTED_HINT,
}
_OTHER_ROOT_HINT = (
    "use the same absolute cache root on source and target, or go on with --allow-other-root"
)


def no_objection(record: WorkerRecord) -> str:
    """Take every source."""
    return ""


@dataclass(frozen=True)
class SourceWanted:
    """Which of the compatible sources will do, and how long to wait for one [seconds].

    `accelerator` is the family of the device that the cache is for ("cuda"); empty: unknown.
    `allow_other_root` takes sources too whose cache root differs where it must not.
    """

    worker_rank: int | None = None
    node_rank: int | None = None
    artifact_id: str = ""
    accelerator: str = ""
    wait_seconds: float = 0.0
    allow_other_root: bool = False


ANY_SOURCE = SourceWanted()
"""Any compatible source, if there is one now."""


@dataclass(frozen=True)
class Verdict:
    """The reasons why a target cannot use a source; none if it can.

    Attributes:
        differences: the differing values by field: of the identity, and of what the target
            requires.
        refusal: why this node refuses the artifact, even if all fields are equal, or "".
        obstacle: why the source cannot be used as it is now, or in these roots, or "".
        hint: the next step, or None.
    """

    differences: Mapping[str, Difference] = field(default_factory=dict)
    refusal: str = ""
    obstacle: str = ""
    hint: str | None = None

    @property
    def fits(self) -> bool:
        """Whether a fetch uses the source."""
        return not (self.differences or self.refusal or self.obstacle)

    @property
    def reason(self) -> str:
        """All reasons why the target cannot use the source, in one line, or ""."""
        differing = ", ".join(
            f"{name} is {theirs or 'not stated'} there, {ours or 'not stated'} here"
            for name, (ours, theirs) in self.differences.items()
        )
        return "; ".join(filter(None, (differing, self.refusal, self.obstacle)))


@dataclass(frozen=True)
class Target:
    """A node that looks for a source.

    `refused` maps the ids of artifacts that this node must not fetch to the reason.
    `root_objection` is called for a source that has no other obstacle.
    """

    identity: SourceIdentity
    wanted: SourceWanted = ANY_SOURCE
    refused: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    root_objection: RootObjection = no_objection

    def judge_row(self, ref: SourceRef) -> Verdict:
        """Judge by a row of a listing, which holds a part of the record.

        If a source does not fit by its row, its record need not be read.
        """
        differences = self._unlike(ref.worker_rank, ref.accelerator)
        artifact_id = ref.topology.get(ARTIFACT_LABEL)
        if artifact_id is None:
            return Verdict(differences, hint=_hint(differences))
        differences |= self._unlike_artifact(artifact_id)
        return Verdict(differences, self.refused.get(artifact_id, ""), hint=_hint(differences))

    def judge(self, stored: StoredWorker) -> Verdict:
        """Judge by the record. The filters of the listing are checked again, not trusted."""
        record, artifact = stored.record, stored.record.artifact
        differences: dict[str, Difference] = {}
        if stored.identity.model_name:  # else the server does not keep identities
            differences |= identity_differences(self.identity, stored.identity)
        differences |= self._unlike(record.worker_rank, record.accelerator)
        if artifact is None:
            return Verdict(differences, obstacle="it serves no artifact", hint=_hint(differences))
        differences |= self._unlike_artifact(artifact.artifact_id)
        if self.wanted.node_rank not in (None, artifact.node_rank):
            differences["node_rank"] = (str(self.wanted.node_rank), str(artifact.node_rank))
        refusal = self.refused.get(artifact.artifact_id, "")
        obstacle, hint = "", _hint(differences)
        if not record.worker_grpc_endpoint:
            obstacle = "it gives no worker endpoint"
        elif not _is_address(record.worker_grpc_endpoint):
            obstacle = f"its endpoint '{shown(record.worker_grpc_endpoint)}' is not host:port"
        elif record.status is not SourceStatus.READY:
            obstacle = f"it is {record.status.name.lower()}, not ready"
        elif not (differences or refusal):
            obstacle = self.root_objection(record)
            hint = _OTHER_ROOT_HINT if obstacle else None
        return Verdict(differences, refusal, obstacle, hint)

    def _unlike(self, worker_rank: int, accelerator: str) -> dict[str, Difference]:
        differences = {}
        if self.wanted.worker_rank not in (None, worker_rank):
            differences["worker_rank"] = (str(self.wanted.worker_rank), str(worker_rank))
        if not accelerators_compatible(self.wanted.accelerator, accelerator):
            differences["accelerator"] = (self.wanted.accelerator, accelerator)
        return differences

    def _unlike_artifact(self, artifact_id: str) -> dict[str, Difference]:
        if self.wanted.artifact_id in ("", artifact_id):
            return {}
        return {"artifact_id": (self.wanted.artifact_id, artifact_id)}


def _is_address(endpoint: str) -> bool:
    try:
        return parse_address(endpoint) == endpoint
    except ValueError:
        return False


def _hint(differences: Mapping[str, Difference]) -> str | None:
    return next((_HINTS[name] for name in differences if name in _HINTS), None)


def label_of(source: SourceRef | StoredWorker) -> str:
    """Return what a source is called in messages: its source id and worker id."""
    return f"{source.mx_source_id}/{source.worker_id}"
