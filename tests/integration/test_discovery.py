"""Discovery over real servers: ours, and those of another house that ignore what they are asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from mx_artifacts.artifacts.factories import transfer_of_kind
from mx_artifacts.artifacts.target import source_order
from mx_artifacts.artifacts.target.discover import candidate_sources, discover_artifact_source
from mx_artifacts.artifacts.target.source_finder import SourceFinder
from mx_artifacts.artifacts.target.suitability import SourceWanted, Target
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity, SourceType
from mx_artifacts.core.sources import (
    ArtifactSummary,
    SourceQuery,
    SourceRef,
    SourceStatus,
    WorkerRecord,
)
from mx_artifacts.errors import ExitCode, IncompatibleSourceError, RemoteError
from mx_artifacts.observability.events import ignore_events
from mx_artifacts.runtime.clock import SYSTEM_CLOCK
from mx_artifacts.server.app import ServerConfig
from tests.support.artifacts import new_agent
from tests.support.central import running_central
from tests.support.cli import runner
from tests.support.fleet import IDENTITY, KIND, Fleet, fill_cache, running_fleet
from tests.support.install_cases import contents
from tests.support.older_server import OlderServer, running_older_server

HERE = SourceIdentity(
    mx_source_type=SourceType.TRITON_CACHE, model_name="org/model", gpu_arch="sm90"
)
RECORD = WorkerRecord(
    status=SourceStatus.READY,
    worker_grpc_endpoint="node:6555",
    accelerator="cuda",
    artifact=ArtifactSummary("a" * 64, 1, 1, 1),
)


@pytest.fixture
def older() -> Iterator[OlderServer]:
    with running_older_server(OlderServer(ignores_status=True)) as server:
        yield server


@pytest.fixture
def client(older: OlderServer) -> Iterator[CentralClient]:
    with CentralClient(older.address) as client:
        yield client


def found(client: CentralClient, wanted: SourceWanted) -> list[str]:
    order = sorted_by_worker
    return [s.worker_id for s in candidate_sources(client, Target(HERE, wanted), order=order)]


def sorted_by_worker(refs: Sequence[SourceRef]) -> list[SourceRef]:
    return sorted(refs, key=lambda ref: ref.worker_id)


def test_rank_status_and_accelerator_hold_where_the_server_ignores_filters(
    older: OlderServer, client: CentralClient
) -> None:
    client.publish(HERE, RECORD, "fits")
    client.publish(HERE, replace(RECORD, worker_rank=1), "rank")
    client.publish(HERE, replace(RECORD, status=SourceStatus.STALE), "stale")
    client.publish(HERE, replace(RECORD, status=SourceStatus.INITIALIZING), "starting")
    client.publish(HERE, replace(RECORD, accelerator="xpu"), "xpu")
    assert found(client, SourceWanted(worker_rank=0, accelerator="cuda")) == ["fits"]
    assert found(client, SourceWanted(accelerator="cuda")) == ["fits", "rank"]
    with pytest.raises(IncompatibleSourceError) as raised:
        found(client, SourceWanted(worker_rank=5))
    assert "worker_rank is 0 there, 5 here" in str(raised.value)


def test_sources_that_join_a_transfer_are_alive_although_the_server_ignores_the_status(
    older: OlderServer, client: CentralClient, tmp_path: Path
) -> None:
    for status in (SourceStatus.READY, SourceStatus.INITIALIZING, SourceStatus.STALE):
        endpoint = f"{status.name.lower()}:1"
        client.publish(
            HERE, replace(RECORD, status=status, worker_grpc_endpoint=endpoint), status.name
        )
    client.publish(HERE, RECORD, "damaged")
    older.failing = {"damaged"}
    finder = SourceFinder(client, sorted_by_worker, tmp_path, SYSTEM_CLOCK, ignore_events)
    addresses = finder.find_others(HERE, "a" * 64, {})
    assert [each.endpoint for each in addresses] == ["initializing:1", "ready:1"]


def test_listings_of_an_older_server_are_filtered_ordered_and_cut_here(
    older: OlderServer, client: CentralClient
) -> None:
    for number, worker_id in enumerate(("aa", "zz", "mm")):
        client.publish(HERE, replace(RECORD, worker_rank=number % 2), worker_id)
    client.publish(HERE.with_fields(model_name="other"), RECORD, "other")

    def listed(**filters: object) -> list[str]:
        query = SourceQuery(**filters)  # type: ignore[arg-type]
        return [ref.worker_id for ref in client.list_sources(query)]

    assert listed(limit=2) == ["other", "mm"]
    assert listed(model_name="org/model") == ["mm", "zz", "aa"]
    assert listed(model_name="org/model", worker_rank=0) == ["mm", "aa"]
    assert listed(min_updated_at_ms=2, limit=1, worker_rank=1) == ["zz"]
    assert listed(min_training_step=0) == []


def test_after_an_error_of_one_record_the_next_is_read(
    older: OlderServer, client: CentralClient
) -> None:
    for worker_id in ("a", "b", "c"):
        client.publish(HERE, RECORD, worker_id)
    older.failing = {"a", "b"}
    assert found(client, SourceWanted()) == ["c"]
    older.failing = {"a", "b", "c"}
    with pytest.raises(RemoteError, match="the record is damaged"):
        found(client, SourceWanted())


@pytest.mark.parametrize("per_kind", [1, 20])
def test_a_near_miss_behind_many_other_kinds_is_incompatible(per_kind: int) -> None:
    """Eight ranks and seven kinds of one model: a cut listing held none of the kind asked for."""
    with (
        running_central(ServerConfig(port=0)) as address,
        closing(CentralClient(address)) as client,
    ):
        client.publish(HERE.with_fields(gpu_arch="sm100"), RECORD, "near")
        for kind in SourceType:
            if kind is SourceType.TRITON_CACHE:
                continue
            for rank in range(per_kind):
                record = replace(RECORD, worker_rank=rank)
                client.publish(HERE.with_fields(mx_source_type=kind), record, f"w{rank}")
        with pytest.raises(IncompatibleSourceError, match="gpu_arch is sm100 there, sm90 here"):
            discover_artifact_source(client, HERE)


# --- the specification's own call ----------------------------------------------------------------


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with running_fleet(tmp_path) as fleet:
        yield fleet


def test_discover_and_transfer_asks_for_no_more_records_than_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleet: Fleet
) -> None:
    cache = fill_cache(tmp_path / "warm")
    for _ in range(3):
        fleet.publish(cache)
    client = fleet.client()
    source, *_ = client.list_sources(SourceQuery(status=SourceStatus.READY), IDENTITY)
    stored = client.get_metadata(source.mx_source_id, source.worker_id)
    assert stored is not None
    for number in range(197):
        client.publish(IDENTITY, stored.record, f"copy{number}")
    read: list[str] = []
    get_metadata = CentralClient.get_metadata

    def counted(self: CentralClient, mx_source_id: str, worker_id: str) -> object:
        read.append(worker_id)
        return get_metadata(self, mx_source_id, worker_id)

    monkeypatch.setattr(CentralClient, "get_metadata", counted)
    transfer = transfer_of_kind(KIND, bundle_root=tmp_path / "turns", roots={"": tmp_path / "cold"})
    with closing(new_agent("target")) as agent:
        staged = transfer.discover_and_transfer(client, IDENTITY, agent)
        transfer.install(staged)
    assert contents(tmp_path / "cold") == contents(cache)
    # Four at first; a machine under load looks for further ones, one a look.
    assert 1 <= len(read) < 40


def test_the_source_policy_holds_for_discover_and_transfer_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleet: Fleet
) -> None:
    cache = fill_cache(tmp_path / "warm")
    for zone in ("b", "a", "b"):
        fleet.publish(cache, topology={"zone": zone})
    monkeypatch.setenv("MX_P2P_SOURCE_SELECTOR", "topology_aware")
    monkeypatch.setenv("MX_P2P_TOPOLOGY", "zone=a")
    client = fleet.client()
    assert discover_artifact_source(client, IDENTITY).topology["zone"] == "a"
    transfer = transfer_of_kind(KIND, bundle_root=tmp_path / "turns", roots={"": tmp_path / "cold"})
    with closing(new_agent("target")) as agent:
        staged = transfer.discover_and_transfer(client, IDENTITY, agent)
        staged.close()
    assert staged.source.topology["zone"] == "a"
    assert source_order.order_of_settings()([]) == []


# --- the command line ----------------------------------------------------------------------------


def test_a_later_releases_source_is_shown_and_ends_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = runner(capsys)
    with (
        running_central(ServerConfig(port=0)) as address,
        closing(CentralClient(address)) as client,
    ):
        client.publish(HERE.with_fields(mx_source_type=10), RECORD, "later")
        client.publish(HERE.with_fields(backend_framework=7), RECORD, "other-engine")
        listed = run("sources", "list", "--server", address)
        assert listed.code == ExitCode.OK
        assert "type 10" in listed.out
        source_id = client.list_sources(SourceQuery())[0].mx_source_id
        shown = run("sources", "show", source_id, "--server", address)
        assert "framework 7" in shown.out
        stated = (
            "backend_framework=vllm",
            "cuda_version=13",
            "triton_version=3.8",
            "gpu_arch=sm90",
        )
        extras = ("triton_key=k", "machine=m", "python_abi=p", "libc=l")
        identity = [word for value in (*stated, *extras) for word in ("--identity", value)]
        why = run("why", "--kind", "triton", "--model", "org/model", *identity, "--server", address)
        assert why.code == ExitCode.INCOMPATIBLE
        assert "framework 7" in why.out
        assert "was not compared: it serves type 10, which this version does not know" in why.out
