"""What a follower of sources installs, and what it tells of looks that fail."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from mx_artifacts.artifacts.target.group_member import GroupWanted
from mx_artifacts.artifacts.target.suitability import SourceWanted
from mx_artifacts.errors import BackendUnavailableError, ConfigurationError, InstallError
from mx_artifacts.fetcher import ArtifactFetcher
from mx_artifacts.identity.identify import ProbedIdentity
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.observability.catalogue import FollowFailed
from mx_artifacts.observability.events import Event
from mx_artifacts.workflows.fetch_kinds import FetchedKind, FetchKindsRequest, fetch_kinds
from mx_artifacts.workflows.follow_settings import FollowSettings
from mx_artifacts.workflows.follow_sources import SourcesFollower
from mx_artifacts.workflows.kind_outcomes import KindOutcomes
from mx_artifacts.workflows.selected_kind import SelectedKind
from mx_artifacts.workflows.stop import StopEvent
from tests.support.workflow_fakes import FakeFetcher, Looks, probed

TRITON, INDUCTOR = (SelectedKind(get_kind(name)) for name in ("triton", "inductor"))
SETTINGS = FollowSettings(interval_seconds=0.0)


class Target:
    """Has fetched what `fake` serves, and follows."""

    def __init__(self, fake: FakeFetcher, request: FetchKindsRequest) -> None:
        self.fake, self.events = fake, list[Event]()
        self.installed: list[str] = []
        fetcher = cast(ArtifactFetcher, fake)
        fetched = fetch_kinds(fetcher, request)
        self.follower = SourcesFollower(
            fetcher, request, fetched, SETTINGS, on_fetched=self._note, events=self.events.append
        )

    def _note(self, fetched: FetchedKind) -> None:
        self.installed.append(fetched.result.source.artifact_id)


def test_an_artifact_is_installed_once() -> None:
    target = Target(FakeFetcher({"triton": "a"}), FetchKindsRequest((TRITON,), probed))
    target.follower.run(Looks(2))
    assert target.installed == []
    target.fake.sources["triton"] = "b"
    target.follower.run(Looks(2))
    target.fake.sources["triton"] = "a"
    target.follower.run(Looks(2))
    assert target.installed == ["b"]
    assert [wanted.artifact_id for _, wanted in target.fake.fetched] == ["", "b"]


def test_a_kind_that_had_no_source_is_followed_and_one_without_an_identity_is_not() -> None:
    def identify(each: SelectedKind) -> ProbedIdentity:
        if each is INDUCTOR:
            raise ConfigurationError("not installed")
        return probed(each)

    request = FetchKindsRequest((INDUCTOR, TRITON), identify, skip_absent=True)
    target = Target(FakeFetcher(), request)
    target.fake.sources |= {"triton": "a", "inductor": "b"}
    target.follower.run(Looks(1))
    assert target.installed == ["a"]


def test_a_failure_is_reported_once_until_a_check_succeeds() -> None:
    target = Target(FakeFetcher({"triton": "a"}), FetchKindsRequest((TRITON,), probed))
    down, full = BackendUnavailableError("down"), InstallError("full")
    for error in (down, full):
        target.fake.sources["triton"] = error
        target.follower.run(Looks(3))
    assert target.events == [FollowFailed("triton", down), FollowFailed("triton", full)]
    target.fake.sources["triton"] = "a"
    target.follower.run(Looks(1))
    target.fake.sources["triton"] = full
    target.follower.run(Looks(1))
    assert target.events[2:] == [FollowFailed("triton", full)]


@pytest.mark.parametrize(
    "request_",
    [
        FetchKindsRequest((TRITON,), probed, group=GroupWanted("g", 2, "me")),
        FetchKindsRequest((TRITON,), probed, SourceWanted(artifact_id="ab")),
    ],
    ids=["group", "artifact"],
)
def test_requests_that_leave_nothing_to_follow_are_refused(request_: FetchKindsRequest) -> None:
    fetcher = cast(ArtifactFetcher, FakeFetcher())
    with pytest.raises(ConfigurationError) as caught:
        SourcesFollower(fetcher, request_, KindOutcomes(), SETTINGS, on_fetched=lambda each: None)
    assert caught.value.hint()


def test_another_thread_ends_it() -> None:
    target = Target(FakeFetcher({"triton": "a"}), FetchKindsRequest((TRITON,), probed))
    target.fake.sources["triton"] = "b"
    stop = StopEvent()
    follower = threading.Thread(target=target.follower.run, args=(stop,))
    follower.start()
    stop.make()
    follower.join(timeout=30)
    assert not follower.is_alive()
    stop.run(lambda: target.installed.append("ran"))
    assert "ran" not in target.installed
