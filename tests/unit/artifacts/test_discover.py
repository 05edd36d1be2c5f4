"""Discovery: who may be asked, in which order, and why not the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from mx_artifacts.artifacts.target.discover import candidate_sources, discover_artifact_source
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity, SourceType, compute_mx_source_id
from mx_artifacts.core.sources import (
    ArtifactSummary,
    SourceQuery,
    SourceRef,
    SourceStatus,
    StoredWorker,
    WorkerRecord,
)
from mx_artifacts.errors import IncompatibleSourceError, NoSourceError

HERE = SourceIdentity(
    mx_source_type=SourceType.TRITON_CACHE, model_name="m", gpu_arch="sm120", triton_version="3.8.0"
)


def source(
    worker_id: str, identity: SourceIdentity = HERE, node_rank: int = 0, **changes: object
) -> StoredWorker:
    """Return a ready record of an artifact named after its worker."""
    record = WorkerRecord(
        status=SourceStatus.READY,
        worker_grpc_endpoint=f"{worker_id}:1",
        artifact=ArtifactSummary(f"artifact-{worker_id}", 10, 1, 1, node_rank),
    )
    record = replace(record, **changes)  # type: ignore[arg-type]
    return StoredWorker(compute_mx_source_id(identity), worker_id, identity, record)


@dataclass
class Records:
    """A central server's answers, for faults that a real one does not give on demand."""

    stored: list[StoredWorker]
    vanished: set[str] = field(default_factory=set)
    list_accelerator: str | None = None

    def list_sources(
        self, query: SourceQuery, identity: SourceIdentity | None = None
    ) -> list[SourceRef]:
        wanted = compute_mx_source_id(identity) if identity else None
        return [
            SourceRef(
                s.mx_source_id, s.worker_id, s.identity.model_name, s.record.worker_rank,
                s.record.accelerator if self.list_accelerator is None else self.list_accelerator,
            )
            for s in self.stored
            if wanted in (None, s.mx_source_id)
            and query.model_name in (None, s.identity.model_name)
            and query.worker_rank in (None, s.record.worker_rank)
        ]  # fmt: skip

    def get_metadata(self, mx_source_id: str, worker_id: str) -> StoredWorker | None:
        if worker_id in self.vanished:
            return None
        return next(s for s in self.stored if s.worker_id == worker_id)


def found(records: Records, **wanted: object) -> list[str]:
    client = cast(CentralClient, records)
    return [s.worker_id for s in candidate_sources(client, HERE, **wanted)]  # type: ignore[arg-type]


def test_all_compatible_sources_come_in_the_given_order() -> None:
    records = Records([source("a"), source("b"), source("c")])

    def backwards(refs: Sequence[SourceRef]) -> Sequence[SourceRef]:
        return list(reversed(refs))

    assert found(records, order=backwards) == ["c", "b", "a"]


def test_filters() -> None:
    records = Records([source("a"), source("b", node_rank=1), source("c", worker_rank=7)])
    assert found(records, node_rank=1) == ["b"]
    assert found(records, worker_rank=7) == ["c"]
    assert found(records, artifact_id="artifact-a") == ["a"]


def test_unlike_accelerators_are_dropped_by_listing_and_by_record() -> None:
    records = Records([source("a", accelerator="xpu"), source("b", accelerator="cuda")])
    assert found(records, accelerator="cuda") == ["b"]
    records.list_accelerator = ""  # an older server's listing does not carry it
    assert found(records, accelerator="cuda") == ["b"]
    assert found(records) == ["a", "b"]  # unknown here is accepted


def test_a_record_that_vanished_is_passed_over() -> None:
    assert found(Records([source("a"), source("b")], vanished={"a"})) == ["b"]


@pytest.mark.parametrize(
    ("record", "because", "hint"),
    [
        (source("a", artifact=None), "serves no artifact", ""),
        (source("a", worker_grpc_endpoint=""), "no worker endpoint", ""),
        (source("a", accelerator="xpu"), "accelerator is xpu, here it is cuda", "--accelerator"),
        (source("a", node_rank=3), "node rank is 3", "no rank"),
        (source("a", artifact=ArtifactSummary("x", 1, 1, 1, 0)), "serves artifact x", "no rank"),
        (source("a", worker_rank=3), "worker rank is 3", "no rank"),
    ],
)
@pytest.mark.parametrize("listed_accelerator", [None, ""])
def test_reasons_are_named(
    record: StoredWorker, because: str, hint: str, listed_accelerator: str | None
) -> None:
    records = Records([record], list_accelerator=listed_accelerator)
    with pytest.raises(IncompatibleSourceError, match=because) as caught:
        found(records, accelerator="cuda", node_rank=0, worker_rank=0, artifact_id="artifact-a")
    assert list(caught.value.reasons) == [f"{record.mx_source_id}/a"]
    assert hint in caught.value.hint()


def test_a_root_that_a_cache_cannot_be_adapted_to() -> None:
    records = Records([source("a"), source("b", topology={"mx_artifacts.root": "/here"})])

    def objection(record: WorkerRecord) -> str:
        return (
            "" if record.topology.get("mx_artifacts.root") == "/here" else "its root is not /here"
        )

    assert found(records, root_objection=objection) == ["b"]
    with pytest.raises(IncompatibleSourceError, match="its root is not /here") as caught:
        found(Records([source("a")]), root_objection=objection)
    assert "--allow-other-root" in caught.value.hint()


def test_a_near_miss_names_the_field_that_differs() -> None:
    there = HERE.with_fields(gpu_arch="sm86", extra_parameters={"spec_tokens": "7"})
    with pytest.raises(IncompatibleSourceError) as caught:
        found(Records([source("a", there)]))
    assert "gpu_arch is sm86 there, sm120 here" in str(caught.value)
    assert "extra_parameters.spec_tokens is 7 there, not stated here" in str(caught.value)


@pytest.mark.parametrize(
    "stored",
    [
        [],
        [source("a", HERE.with_fields(model_name="other"))],
        [source("a", HERE.with_fields(mx_source_type=SourceType.TILELANG_CACHE))],
    ],
)
def test_nobody_serves_this(stored: list[StoredWorker]) -> None:
    with pytest.raises(NoSourceError, match="the triton cache of model 'm'"):
        discover_artifact_source(cast(CentralClient, Records(stored)), HERE)


def test_another_rank_is_told() -> None:
    with pytest.raises(IncompatibleSourceError, match="worker rank"):
        found(Records([source("a", worker_rank=1)]), worker_rank=0)
