"""Targets read from all that serve an artifact, leave the bad behind, and keep what verified."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.artifacts.target.suitability import SourceWanted
from mx_artifacts.core.sources import SourceQuery, SourceStatus
from mx_artifacts.errors import MxArtifactsError, PeerLostError, TransferFailedError
from mx_artifacts.install import kept_entries
from mx_artifacts.observability.events import Event
from mx_artifacts.transfer.timing import TransferTiming
from mx_artifacts.transport.faults import Corrupt, LosePeer, Stall
from tests.support.fleet import IDENTITY, Counting, Fleet, fill_cache, running_fleet
from tests.support.install_cases import contents

LARGE_BYTES = 40 << 20


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with running_fleet(tmp_path) as fleet:
        yield fleet


def test_all_sources_of_an_artifact_deliver(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm", large=LARGE_BYTES)
    sources = [fleet.publish(cache) for _ in range(3)]
    assert len({published.artifact_id for _, published in sources}) == 1
    counting = Counting()
    fetched = fleet.fetch(fleet.fetcher(lambda: counting), tmp_path / "cold")
    assert contents(tmp_path / "cold") == contents(cache)
    assert len(counting.bytes_from) == 3
    assert all(counting.bytes_from.values())
    assert sum(counting.bytes_from.values()) == fetched.total_bytes
    assert not fetched.left_behind


@pytest.mark.parametrize("resident", [True, False], ids=["resident", "slots"])
@pytest.mark.parametrize("fault", [LosePeer(), Corrupt(7), Stall()], ids=["lost", "lies", "stalls"])
def test_a_bad_source_is_left_behind_and_named(
    fleet: Fleet, tmp_path: Path, fault: object, resident: bool
) -> None:
    cache = fill_cache(tmp_path / "warm", large=LARGE_BYTES)
    budget: dict[str, Any] = {"resident_budget_bytes": 1 << 30 if resident else 0}
    bad, _ = fleet.publish(cache, **budget)
    fleet.publish(cache, **budget)
    counting = Counting()
    counting.fault_of[bad._transport.agent_name] = fault
    events: list[Event] = []
    fetcher = fleet.fetcher(lambda: counting, events.append)
    try:
        fetched = fleet.fetch(fetcher, tmp_path / "cold")
    finally:
        counting.let_go()
    assert contents(tmp_path / "cold") == contents(cache)
    failed = [e.fields()["endpoint"] for e in events if e.name == "transfer.source_failed"]
    if isinstance(fault, Stall):
        assert not failed
        assert not fetched.left_behind
    else:
        assert failed == [bad.start().server.endpoint] == list(fetched.left_behind)


def test_all_that_fail_are_listed(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm")
    both = [fleet.publish(cache)[0] for _ in range(2)]
    counting = Counting()
    counting.fault_of = {each._transport.agent_name: LosePeer() for each in both}
    with pytest.raises(TransferFailedError) as caught:
        fleet.fetch(fleet.fetcher(lambda: counting), tmp_path / "cold")
    assert {endpoint for endpoint, _ in caught.value.attempts} == {
        each.start().server.endpoint for each in both
    }
    assert all(isinstance(error, PeerLostError) for _, error in caught.value.attempts)
    assert not (tmp_path / "cold").exists()


def test_an_interrupted_fetch_continues_where_it_stopped(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm", large=LARGE_BYTES)
    source, published = fleet.publish(cache)
    counting = Counting()
    counting._inner, agent = counting._inner, source._transport.agent_name

    def fail_late(event: Event) -> None:
        if event.name == "transfer.span" and sum(counting.bytes_from.values()) > LARGE_BYTES // 2:
            counting.fault_of[agent] = LosePeer()

    with pytest.raises(TransferFailedError):
        fleet.fetch(fleet.fetcher(lambda: counting, fail_late), tmp_path / "cold")
    assert not (tmp_path / "cold").exists()
    counting.fault_of.clear()
    fetched = fleet.fetch(fleet.fetcher(), tmp_path / "cold")
    assert contents(tmp_path / "cold") == contents(cache)
    assert 0 < fetched.total_bytes < 0.7 * published.total_bytes


def test_staged_files_that_were_damaged_between_two_fetches_are_read_again(
    fleet: Fleet, tmp_path: Path
) -> None:
    cache = fill_cache(tmp_path / "warm", large=LARGE_BYTES)
    source, published = fleet.publish(cache)
    counting = Counting()

    def fail_late(event: Event) -> None:
        if event.name == "transfer.span" and sum(counting.bytes_from.values()) > LARGE_BYTES // 2:
            counting.fault_of[source._transport.agent_name] = LosePeer()

    with pytest.raises(TransferFailedError):
        fleet.fetch(fleet.fetcher(lambda: counting, fail_late), tmp_path / "cold")
    (staged,) = (tmp_path / ".mx-artifacts.cold/staging").iterdir()
    for path in [p for p in staged.rglob("*") if p.is_file()]:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    (staged / "stranger").mkdir()
    (staged / "link").symlink_to("/etc")
    fetched = fleet.fetch(fleet.fetcher(), tmp_path / "cold")
    assert contents(tmp_path / "cold") == contents(cache)
    assert not (tmp_path / "cold/stranger").exists()
    assert 40 * 100_000 < fetched.total_bytes < published.total_bytes


def test_only_what_changed_is_read(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm", files=100)
    first, published = fleet.publish(cache)
    fleet.fetch(fleet.fetcher(), tmp_path / "cold")
    first.close()
    (cache / "d3/kernel33.bin").write_bytes(b"changed" * 100)
    (cache / "d11").mkdir()
    (cache / "d11/new.bin").write_bytes(b"new" * 100)
    time.sleep(0.6)  # the packer lets files settle
    _, again = fleet.publish(cache)
    fetched = fleet.fetch(fleet.fetcher(), tmp_path / "cold", replace=True)
    assert contents(tmp_path / "cold") == contents(cache)
    assert again.artifact_id != published.artifact_id
    assert fetched.total_bytes < 5_000
    (report,) = fetched.report.roots
    assert set(report.installed) == {"d3/kernel33.bin", "d11/new.bin"}
    assert len(report.same) == 99
    assert fleet.fetch(fleet.fetcher(), tmp_path / "cold").total_bytes == 0
    (tmp_path / "cold/d0/kernel0.bin").write_bytes(b"?" * 100_000)  # of the first install
    (report,) = fleet.fetch(fleet.fetcher(), tmp_path / "cold").report.roots
    assert list(report.unverified) == ["d0/kernel0.bin"]
    assert len(report.same) == 100


def test_a_file_that_became_executable_counts_as_changed(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm", files=20)
    first, _ = fleet.publish(cache)
    fleet.fetch(fleet.fetcher(), tmp_path / "cold")
    first.close()
    (cache / "d0/kernel0.bin").chmod(0o755)
    (cache / "d0/kernel1.bin").chmod(0o600)  # which is 644 wherever it is installed
    time.sleep(0.6)
    fleet.publish(cache)
    fetched = fleet.fetch(fleet.fetcher(), tmp_path / "cold", replace=True)
    assert (tmp_path / "cold/d0/kernel0.bin").stat().st_mode & 0o777 == 0o755
    assert fetched.report.roots[0].installed == ("d0/kernel0.bin",)


def test_an_entry_that_the_engine_changed_counts_as_changed(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm", files=20)
    first, _ = fleet.publish(cache)
    fleet.fetch(fleet.fetcher(), tmp_path / "cold")
    first.close()
    (tmp_path / "cold/d0/kernel1.bin").write_bytes(b"?" * 100_000)
    (cache / "d0/kernel2.bin").write_bytes(b"changed")
    time.sleep(0.6)
    fleet.publish(cache)
    fleet.fetch(fleet.fetcher(), tmp_path / "cold", replace=True)
    assert contents(tmp_path / "cold") == contents(cache)


def test_a_long_fetch_reports_entries_that_the_engine_changes_meanwhile(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_entries, "LOOK_AGAIN_SECONDS", 0.0)
    cache = fill_cache(tmp_path / "warm", files=20)
    first, _ = fleet.publish(cache)
    fleet.fetch(fleet.fetcher(), tmp_path / "cold")
    first.close()
    (cache / "d0/kernel2.bin").write_bytes(b"changed")
    time.sleep(0.6)
    fleet.publish(cache)

    def change(event: Event) -> None:
        if event.name == "install.staged":
            (tmp_path / "cold/d0/kernel1.bin").write_bytes(b"?" * 100_000)

    fetched = fleet.fetch(fleet.fetcher(events=change), tmp_path / "cold", replace=True)
    (report,) = fetched.report.roots
    assert report.installed == ("d0/kernel2.bin",)
    assert {*report.kept} - {*report.same} == {"d0/kernel1.bin"}
    assert list(report.unverified) == ["d0/kernel1.bin"]


def test_a_target_serves_what_it_has_and_its_source_may_go(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm")
    source, published = fleet.publish(cache)
    seeding = fleet.fetcher(seed=True)
    fleet.fetch(seeding, tmp_path / "first")
    source.close()
    fetched = fleet.fetch(fleet.fetcher(), tmp_path / "second")
    assert fetched.source.artifact_id == published.artifact_id
    assert contents(tmp_path / "second") == contents(cache)
    seeding.close()
    listed = fleet.client().list_sources(SourceQuery(status=SourceStatus.READY), IDENTITY)
    assert listed == []


def test_a_target_that_has_it_already_seeds_too(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm")
    source, _ = fleet.publish(cache)
    fleet.fetch(fleet.fetcher(), tmp_path / "first")
    assert fleet.fetch(fleet.fetcher(seed=True), tmp_path / "first").report.unchanged
    source.close()
    fleet.fetch(fleet.fetcher(), tmp_path / "second")
    assert contents(tmp_path / "second") == contents(cache)


def test_an_installed_artifact_stays_if_it_cannot_be_seeded(fleet: Fleet, tmp_path: Path) -> None:
    source, _ = fleet.publish(fill_cache(tmp_path / "warm"))
    fleet.fetch(fleet.fetcher(), tmp_path / "first")
    source.start().server.stop(grace_seconds=0)  # its record stays
    events: list[Event] = []
    fetcher = fleet.fetcher(events=events.append, seed=True)
    fetched = fleet.fetch(fetcher, tmp_path / "first")
    assert fetched.report.unchanged
    assert not fetcher.is_seeding
    assert "seed.failed" in {event.name for event in events}


def test_targets_that_start_at_once_read_from_each_other(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm", large=LARGE_BYTES)
    source, published = fleet.publish(cache)
    countings = [Counting(pause_seconds=0.4) for _ in range(4)]

    def fetch(number: int) -> None:
        counting = countings[number]
        fetcher = fleet.fetcher(
            lambda: counting,
            seed=True,
            slots=1,
            bundle_root=tmp_path / f"turns{number}",
        )
        fleet.fetch(fetcher, tmp_path / f"cold{number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fetch, range(4)))
    assert all(contents(tmp_path / f"cold{n}") == contents(cache) for n in range(4))
    origin = source._transport.agent_name
    from_origin = sum(each.bytes_from.get(origin, 0) for each in countings)
    assert from_origin < 3.8 * published.total_bytes
    assert sum(len(each.bytes_from) > 1 for each in countings) >= 2


def test_a_seed_that_finds_no_memory_harms_no_install(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm")
    fleet.publish(cache)
    events: list[Event] = []
    fetcher = fleet.fetcher(events=events.append, seed=True, resident_budget_bytes=1000)
    fleet.fetch(fetcher, tmp_path / "cold")
    assert contents(tmp_path / "cold") == contents(cache)
    (failed,) = [event for event in events if event.name == "seed.failed"]
    assert "MX_ARTIFACT_RESIDENT_BUDGET" in failed.fields()["error"].hint()
    assert fetcher._seeds.endpoint
    assert not fetcher._seeds.is_serving


@pytest.mark.parametrize("limited", [False, True], ids=["whole", "by chunks"])
def test_seeds_that_lack_the_same_do_not_wait_for_each_other(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    """Also where a rate limit makes them lease chunks."""
    source, _ = fleet.publish(fill_cache(tmp_path / "warm", large=LARGE_BYTES))
    countings = [Counting(pause_seconds=0.2) for _ in range(2)]
    half = threading.Event()

    def tell(event: Event) -> None:
        taken = sum(sum(each.bytes_from.values()) for each in countings)
        if event.name == "transfer.span" and taken > LARGE_BYTES // 2:
            half.set()

    def fetch(number: int) -> MxArtifactsError | None:
        counting = countings[number]
        fetcher = fleet.fetcher(
            lambda: counting,
            tell,
            TransferTiming(stuck=2.0),
            seed=True,
            max_bytes_per_second=16 << 20 if limited else None,
            bundle_root=tmp_path / f"turns{number}",
        )
        try:
            fleet.fetch(fetcher, tmp_path / f"cold{number}")
        except MxArtifactsError as error:
            return error
        return None

    with ThreadPoolExecutor(2) as pool:
        fetches = [pool.submit(fetch, number) for number in range(2)]
        assert half.wait(30)
        for counting in countings:
            counting.fault_of[source._transport.agent_name] = LosePeer()
        source.close()
        errors = [each.result(timeout=40) for each in fetches]
    assert all(isinstance(error, TransferFailedError) for error in errors)
    assert not any((tmp_path / f"cold{number}").exists() for number in range(2))


def test_a_fetch_waits_for_the_next_life_of_a_source_that_is_still_listed(
    fleet: Fleet, tmp_path: Path
) -> None:
    cache = fill_cache(tmp_path / "warm")
    first, _ = fleet.publish(cache)
    first.start().server.stop(
        grace_seconds=0
    )  # its record stays, as that of a pod which was killed
    events: list[Event] = []
    fetcher = fleet.fetcher(events=events.append)
    with ThreadPoolExecutor(1) as pool:
        wanted = SourceWanted(wait_seconds=60)
        fetching = pool.submit(fleet.fetch, fetcher, tmp_path / "cold", wanted=wanted)
        while not any(event.name == "discover.waiting" for event in events):
            time.sleep(0.05)
        fleet.publish(cache)
        fetched = fetching.result(timeout=40)
    assert contents(tmp_path / "cold") == contents(cache)
    assert fetched.delivered == {fetched.source.worker_grpc_endpoint: fetched.total_bytes}
