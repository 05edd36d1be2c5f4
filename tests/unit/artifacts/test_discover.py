"""Discovery: who may be asked, in which order, and why not the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import cast

import pytest

from mx_artifacts.artifacts.target import record_reader
from mx_artifacts.artifacts.target.discover import (
    OrderCandidates,
    candidate_sources,
    discover_artifact_source,
)
from mx_artifacts.artifacts.target.suitability import (
    RootObjection,
    SourceWanted,
    Target,
    no_objection,
)
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
from mx_artifacts.errors import BackendUnavailableError, IncompatibleSourceError, NoSourceError
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.runtime.deadline import Deadline

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
    failing: set[str] = field(default_factory=set)
    list_accelerator: str | None = None
    read: list[str] = field(default_factory=list)

    def list_sources(
        self, query: SourceQuery, identity: SourceIdentity | None = None
    ) -> list[SourceRef]:
        wanted = compute_mx_source_id(identity) if identity else None
        return [
            SourceRef(
                s.mx_source_id, s.worker_id, s.identity.model_name, s.record.worker_rank,
                s.record.accelerator if self.list_accelerator is None else self.list_accelerator,
                topology=s.record.topology,
            )
            for s in self.stored
            if wanted in (None, s.mx_source_id)
            and query.model_name in (None, s.identity.model_name)
        ]  # fmt: skip

    def get_metadata(self, mx_source_id: str, worker_id: str) -> StoredWorker | None:
        self.read.append(worker_id)
        if worker_id in self.vanished:
            return None
        if worker_id in self.failing:
            raise BackendUnavailableError(f"no answer about {worker_id}")
        return next(s for s in self.stored if s.worker_id == worker_id)


def as_listed(refs: Sequence[SourceRef]) -> Sequence[SourceRef]:
    return refs


def candidates(
    records: Records,
    order: OrderCandidates = as_listed,
    root_objection: RootObjection = no_objection,
    refused: Mapping[str, str] = MappingProxyType({}),
    **wanted: object,
) -> Iterator[str]:
    target = Target(HERE, SourceWanted(**wanted), refused, root_objection)  # type: ignore[arg-type]
    client = cast(CentralClient, records)
    return (source.worker_id for source in candidate_sources(client, target, order=order))


def found(records: Records, **asked: object) -> list[str]:
    return list(candidates(records, **asked))  # type: ignore[arg-type]


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
        (source("a", accelerator="xpu"), "accelerator is xpu there, cuda here", "--accelerator"),
        (source("a", node_rank=3), "node_rank is 3 there, 0 here", "no rank"),
        (source("a", artifact=ArtifactSummary("x", 1, 1, 1, 0)), "artifact_id is x", "no rank"),
        (source("a", worker_rank=3), "worker_rank is 3 there, 0 here", "no rank"),
        (source("a", status=SourceStatus.STALE), "it is stale, not ready", ""),
        (
            replace(source("a"), identity=HERE.with_fields(gpu_arch="sm90")),
            "gpu_arch is sm90 there, sm120 here",  # a server that knows not all fields
            "",
        ),
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


def test_another_rank_is_reported() -> None:
    with pytest.raises(IncompatibleSourceError, match="worker_rank is 1 there, 0 here"):
        found(Records([source("a", worker_rank=1)]), worker_rank=0)


# --- records are read one by one -----------------------------------------------------------------


def test_no_record_is_read_before_its_source_is_asked_for() -> None:
    records = Records([source(name) for name in "abcde"])
    taken = candidates(records)
    assert [next(taken), next(taken)] == ["a", "b"]
    assert records.read == ["a", "b"]


def test_a_source_that_its_row_rules_out_is_not_read() -> None:
    labelled = [
        source(name, topology={"mx_artifacts.artifact": f"artifact-{name}"}) for name in "abc"
    ]
    records = Records([*labelled, source("d", worker_rank=1), source("e", accelerator="xpu")])
    asked = {"worker_rank": 0, "accelerator": "cuda"}
    assert found(records, artifact_id="artifact-b", **asked) == ["b"]
    assert records.read == ["b"]
    records.read.clear()
    assert found(records, refused={"artifact-a": "a"}, **asked) == ["b", "c"]
    assert records.read == ["b", "c"]


def test_a_record_that_cannot_be_read_is_passed_over() -> None:
    records = Records([source("a"), source("b"), source("c")], failing={"a", "c"})
    assert found(records) == ["b"]


def test_records_that_cannot_be_read_are_no_reason_to_call_anything_incompatible() -> None:
    records = Records([source("a"), source("b", worker_rank=3)], failing={"a"})
    with pytest.raises(BackendUnavailableError, match="about a"):
        found(records, worker_rank=0)


def test_a_server_that_does_not_answer_is_not_asked_about_every_source() -> None:
    names = [f"w{number}" for number in range(20)]
    records = Records([source(name) for name in names], failing=set(names))
    with pytest.raises(BackendUnavailableError):
        found(records)
    assert len(records.read) == 3
    records = Records([source(name) for name in names], failing=set(names[1:]))
    assert found(records) == ["w0"]
    assert len(records.read) == 4


def test_after_its_deadline_no_further_record_is_read() -> None:
    clock = FakeClock()
    records = Records([source("a"), source("b"), source("c")])
    deadline = Deadline(1.0, clock)
    client, target = cast(CentralClient, records), Target(HERE, SourceWanted(), {}, no_objection)
    taken = candidate_sources(client, target, order=as_listed, deadline=deadline)
    assert next(taken).worker_id == "a"
    clock.advance(1.0)
    assert list(taken) == []
    assert records.read == ["a"]
    with pytest.raises(BackendUnavailableError, match="after 1 s") as caught:
        next(candidate_sources(client, target, order=as_listed, deadline=deadline))
    assert "MX_SOURCE_QUERY_TIMEOUT" in caught.value.hint()


# --- explanations are of the whole listing -------------------------------------------------------


def test_a_near_miss_is_found_behind_any_number_of_other_kinds() -> None:
    """House-review 8.1: the first 16 rows held none of the kind, and the exit code was 10."""
    others = [
        source(f"{kind.name}-{number}", HERE.with_fields(mx_source_type=kind, dtype=str(number)))
        for kind in SourceType
        if kind is not SourceType.TRITON_CACHE
        for number in range(80)
    ]
    near = source("near", HERE.with_fields(gpu_arch="sm86"))
    with pytest.raises(
        IncompatibleSourceError, match="gpu_arch is sm86 there, sm120 here"
    ) as raised:
        found(Records([*others, near]))
    assert list(raised.value.reasons) == [f"{near.mx_source_id}/near"]


def test_the_record_of_one_worker_gives_the_identity_of_its_source_id() -> None:
    other = HERE.with_fields(mx_source_type=SourceType.TILELANG_CACHE)
    records = Records([source(f"w{number}", other) for number in range(100)])
    with pytest.raises(NoSourceError):
        found(records)
    assert records.read == ["w0"]


def test_identities_are_read_once_during_a_wait() -> None:
    records = Records([source("a", HERE.with_fields(mx_source_type=SourceType.TILELANG_CACHE))])
    known: dict[str, SourceIdentity] = {}
    for _ in range(3):
        with pytest.raises(NoSourceError):
            list(candidate_sources(cast(CentralClient, records), Target(HERE), known=known))
    assert records.read == ["a"]


def test_a_very_long_list_of_misses_is_cut_in_the_message_only() -> None:
    records = Records([source(f"w{number}", accelerator="xpu") for number in range(40)])
    with pytest.raises(IncompatibleSourceError, match=r"; and 24 more$") as raised:
        found(records, accelerator="cuda")
    assert len(raised.value.reasons) == 40


def test_a_server_that_lists_without_end_is_read_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_reader, "MAX_RECORDS", 5)
    records = Records([source(f"w{number}", node_rank=1) for number in range(50)])
    with pytest.raises(IncompatibleSourceError):
        found(records, node_rank=0)
    assert len(records.read) <= 2 * 5  # for the search, and for the explanation
