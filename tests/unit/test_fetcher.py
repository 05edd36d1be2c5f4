"""The fetcher's waiting, against a central server whose answers the test scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from mx_artifacts.artifacts import tarred
from mx_artifacts.artifacts.target import single_flight
from mx_artifacts.artifacts.target.fetch_values import FetcherSettings
from mx_artifacts.artifacts.target.single_flight import turn_to_fetch
from mx_artifacts.artifacts.target.suitability import SourceWanted
from mx_artifacts.bundle.rules import first_parts
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
from mx_artifacts.errors import (
    BackendUnavailableError,
    ConfigurationError,
    NoSourceError,
    NoSpaceError,
    UnusablePlaceError,
)
from mx_artifacts.fetcher import ArtifactFetcher
from mx_artifacts.filesystem.space import Need
from mx_artifacts.install.base import ArtifactOrigin, RootInstall
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.observability.catalogue import FetchWaiting
from mx_artifacts.observability.events import Event, ignore_events
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.transport.base import Transport
from tests.support.install_cases import NEW, install_roots, make_bundle

TRITON = SourceIdentity(mx_source_type=SourceType.TRITON_CACHE, model_name="m")
INDUCTOR = SourceIdentity(mx_source_type=SourceType.TORCH_COMPILE_CACHE, model_name="m")
TILELANG = SourceIdentity(mx_source_type=SourceType.TILELANG_CACHE, model_name="m")
START = 1000.0


class Server:
    """Serves an identity from the second on that `since` gives it; down before `up`."""

    def __init__(self, clock: FakeClock, since: dict[SourceIdentity, float], up: float = 0) -> None:
        self._clock, self._since, self._up = clock, since, up

    def list_sources(
        self, query: SourceQuery, identity: SourceIdentity | None = None
    ) -> list[SourceRef]:
        now = self._clock.now() - START
        if now < self._up:
            raise BackendUnavailableError("down")
        return [
            SourceRef(compute_mx_source_id(each), "w", "m", 0)
            for each, second in self._since.items()
            if identity == each and second <= now
        ]

    def get_metadata(self, mx_source_id: str, worker_id: str) -> StoredWorker:
        identity = next(i for i in self._since if compute_mx_source_id(i) == mx_source_id)
        record = WorkerRecord(
            status=SourceStatus.READY,
            worker_grpc_endpoint="h:1",
            artifact=ArtifactSummary("a", 1, 1, 1),
        )
        return StoredWorker(mx_source_id, worker_id, identity, record)


class NeedsTransportError(Exception):
    """What is asked cannot be answered by discovery alone."""


def no_transport() -> Transport:
    raise NeedsTransportError


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def fetcher(clock: FakeClock, tmp_path: Path) -> Callable[..., ArtifactFetcher]:
    def make(since: dict[SourceIdentity, float], up: float = 0) -> ArtifactFetcher:
        return ArtifactFetcher(
            client=cast(CentralClient, Server(clock, since, up)),
            transport_factory=no_transport,
            settings=FetcherSettings.from_environment(env={}, bundle_root=tmp_path),
            clock=clock,
        )

    return make


def test_a_source_that_comes_later_is_found(
    fetcher: Callable[..., ArtifactFetcher], clock: FakeClock
) -> None:
    found = fetcher({TRITON: 7.0}).discover(TRITON, SourceWanted(wait_seconds=30))
    assert [source.worker_id for source in found] == ["w"]
    assert 7 <= clock.now() - START < 10


def test_a_server_that_comes_up_later_is_waited_for(
    fetcher: Callable[..., ArtifactFetcher],
) -> None:
    assert fetcher({TRITON: 0.0}, up=5).discover(TRITON, SourceWanted(wait_seconds=30))


def test_the_wait_ends(fetcher: Callable[..., ArtifactFetcher], clock: FakeClock) -> None:
    with pytest.raises(NoSourceError):
        fetcher({}).discover(TRITON, SourceWanted(wait_seconds=9))
    assert clock.now() - START == pytest.approx(9)
    with pytest.raises(BackendUnavailableError):
        fetcher({}, up=99).discover(TRITON, SourceWanted(wait_seconds=9))


@pytest.mark.parametrize(
    ("since", "ends_at"),
    [
        pytest.param({TRITON: 0.0, INDUCTOR: 0.0, TILELANG: 0.0}, 0, id="all there"),
        pytest.param({TRITON: 5.0, INDUCTOR: 5.5}, 7, id="one after the other, a third never"),
        pytest.param({}, 60, id="none"),
    ],
)
def test_waiting_for_some(
    fetcher: Callable[..., ArtifactFetcher],
    clock: FakeClock,
    since: dict[SourceIdentity, float],
    ends_at: float,
) -> None:
    fetcher(since).wait_for_some([TRITON, INDUCTOR, TILELANG], 60)
    assert clock.now() - START == pytest.approx(ends_at, abs=0.5)


def install_triton(root: Path, bundle: Path, artifact_id: str) -> None:
    install_roots(
        [(RootInstall("triton", root, first_parts(1)), bundle)],
        artifact=ArtifactOrigin(artifact_id, "s", "w", "h:1", "triton"),
        lock_timeout_seconds=1.0,
    )


def test_an_installed_artifact_is_not_transferred_again(
    fetcher: Callable[..., ArtifactFetcher], tmp_path: Path
) -> None:
    root, kind = tmp_path / "root", get_kind("triton")
    install_triton(root, make_bundle(tmp_path / "b.tar", NEW), "a")
    fetched = fetcher({TRITON: 0.0}).fetch_and_install(kind, TRITON, {"": root})
    assert (fetched.total_bytes, fetched.transfer_seconds) == (0, 0.0)
    assert fetched.report.unchanged
    assert fetched.report.receipt_path.is_file()
    assert fetched.source.worker_id == "w"
    assert fetcher({TRITON: 0.0}).plan(kind, TRITON, {"": root}).already == fetched.report

    again = fetcher({TRITON: 0.0})
    assert again.plan(kind, TRITON, {"": root}, replace=True).already is None
    with pytest.raises(NeedsTransportError):
        again.fetch_and_install(kind, TRITON, {"": root}, replace=True)
    (root / "k1/kernel.so").write_bytes(b"changed since")
    with pytest.raises(NeedsTransportError):
        again.fetch_and_install(kind, TRITON, {"": root})


class WhileWaiting(FakeClock):
    """Calls `action` the first time that somebody waits."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__(START)
        self._action: Callable[[], object] | None = action

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        action, self._action = self._action, None
        if action is not None:
            action()


def test_an_artifact_that_another_process_installs_meanwhile_is_not_transferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_flight, "UNSAID_SECONDS", 0.0)
    root, kind, bundles = tmp_path / "root", get_kind("triton"), tmp_path / "bundles"
    bundle = make_bundle(tmp_path / "b.tar", NEW)
    other = ExitStack()

    def finish() -> None:
        install_triton(root, bundle, "a")
        other.close()

    clock, events = WhileWaiting(finish), list[Event]()
    other.enter_context(
        turn_to_fetch(bundles, "a", [root], timeout_seconds=0, clock=clock, events=ignore_events)
    )
    fetched = ArtifactFetcher(
        client=cast(CentralClient, Server(clock, {TRITON: 0.0})),
        transport_factory=no_transport,
        settings=FetcherSettings.from_environment(env={}, bundle_root=bundles),
        events=events.append,
        clock=clock,
    ).fetch_and_install(kind, TRITON, {"": root})
    assert (fetched.total_bytes, fetched.report.unchanged) == (0, True)
    (event,) = events
    assert isinstance(event, FetchWaiting)
    assert str(event.error) == f"another process is fetching artifact a into {root}"
    assert list(bundles.iterdir()) == []


def test_a_root_that_cannot_be_is_refused_before_a_source_is_waited_for(
    fetcher: Callable[..., ArtifactFetcher], clock: FakeClock, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    waiting = SourceWanted(wait_seconds=60)
    for call in (fetcher({}).plan, fetcher({}).fetch_and_install):
        with pytest.raises(UnusablePlaceError, match="file"):
            call(get_kind("triton"), TRITON, {"": tmp_path / "file"}, wanted=waiting)
    assert clock.now() == START


def test_a_default_root_that_cannot_be_is_refused_before_the_transfer(
    fetcher: Callable[..., ArtifactFetcher], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    with pytest.raises(NoSourceError):
        fetcher({}).plan(get_kind("triton"), TRITON)
    for call in (fetcher({TRITON: 0.0}).plan, fetcher({TRITON: 0.0}).fetch_and_install):
        with pytest.raises(UnusablePlaceError, match="file"):
            call(get_kind("triton"), TRITON)


def test_a_plan_fails_if_there_is_no_space(
    fetcher: Callable[..., ArtifactFetcher], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(needs: Iterable[Need]) -> None:
        ((need,),) = (needs,)
        raise NoSpaceError(f"{need.directory} has no {need.sizes_bytes} bytes")

    monkeypatch.setattr(tarred, "require_space", full)
    args = (get_kind("triton"), TRITON, {"": tmp_path / "cold"})
    with pytest.raises(NoSpaceError, match=rf"{tmp_path} has no \(1,\) bytes"):
        fetcher({TRITON: 0.0}).plan(*args)
    with pytest.raises(NeedsTransportError):  # the install knows for certain
        fetcher({TRITON: 0.0}).fetch_and_install(*args)


def test_the_transport_is_the_one_that_its_settings_name(
    clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_TRANSPORT", "stream")
    settings = FetcherSettings.from_environment(
        env={"MX_TRANSPORT": "pigeon"}, bundle_root=tmp_path / "bundles"
    )
    client = cast(CentralClient, Server(clock, {TRITON: 0.0}))
    with (
        ArtifactFetcher(client=client, settings=settings, clock=clock) as fetcher,
        pytest.raises(ConfigurationError, match="'pigeon'"),
    ):
        fetcher.fetch_and_install(get_kind("triton"), TRITON, {"": tmp_path / "root"})
