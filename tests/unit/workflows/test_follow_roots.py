"""Roots that come later, change, do not settle, or cannot be sealed."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from mx_artifacts.errors import BundleError, ConfigurationError, SourceChangedError
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.observability.catalogue import (
    PublishFailed,
    RootsAwaited,
    RootsSettling,
    RootsUnsettled,
    SealStarted,
)
from mx_artifacts.observability.events import Event
from mx_artifacts.publisher import ArtifactPublisher
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.workflows.follow_roots import RootsFollower
from mx_artifacts.workflows.follow_settings import FollowSettings
from mx_artifacts.workflows.publish_kinds import PublishedKind, PublishKindsRequest
from mx_artifacts.workflows.selected_kind import SelectedKind
from tests.support.workflow_fakes import FakePublisher, Looks, probed

INTERVAL_SECONDS = 10.0


class Node:
    """A Triton cache at `root`, and a follower of it."""

    def __init__(self, root: Path, settle_seconds: float = 0.0) -> None:
        self.root, self.clock, self.fake = root, FakeClock(), FakePublisher()
        self.events: list[Event] = []
        self.published: list[PublishedKind] = []
        selected = SelectedKind(get_kind("triton"), {"": root})
        self.follower = RootsFollower(
            cast(ArtifactPublisher, self.fake),
            PublishKindsRequest((selected,), lambda each: [probed(each)]),
            FollowSettings(INTERVAL_SECONDS, settle_seconds, patience_seconds=60.0),
            on_published=self.published.append,
            events=self.events.append,
            clock=self.clock,
        )
        self._written = 0

    def write(self) -> None:
        """Write one more entry."""
        self._written += 1
        entry = self.root / f"{self._written:052d}"
        entry.mkdir(parents=True)
        (entry / "kernel.cubin").write_bytes(b"x")

    def look(self, count: int = 2) -> list[str]:
        """Look so many times; return the ids of what was published meanwhile."""
        before = len(self.published)
        self.follower.run(Looks(count, lambda: self.clock.advance(INTERVAL_SECONDS)))
        return [each.result.artifact_id for each in self.published[before:]]

    def told(self, *classes: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, classes)]


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> Node:
    return Node(tmp_path / "cache")


def test_existing_files_are_published_at_once_and_again_after_a_change(node: Node) -> None:
    node.write()
    started = node.follower.start()
    assert started.done["triton"].result.artifact_id == "artifact-1"
    assert node.follower.waited_for == []
    assert node.look() == []
    node.write()
    assert node.look() == ["artifact-2"]
    before = node.published[-1].before
    assert before is not None
    assert before.artifact_id == "artifact-1"
    assert node.told(SealStarted) == [SealStarted("triton")]


def test_sealing_the_same_artifact_again_is_not_reported(node: Node) -> None:
    node.write()
    node.follower.start()
    node.fake.changes = False
    node.write()
    assert node.look() == []


def test_roots_that_are_not_there_are_waited_for(node: Node) -> None:
    started = node.follower.start()
    assert (started.done, started.failed) == ({}, {})
    assert node.follower.waited_for == ["triton"]
    assert node.told(RootsAwaited) == [RootsAwaited("triton", str(node.root), "--root")]
    assert node.look() == []
    node.write()
    assert node.look() == ["artifact-1"]
    assert node.follower.waited_for == []


def test_roots_that_must_settle_are_not_published_at_once(tmp_path: Path) -> None:
    node = Node(tmp_path / "cache", settle_seconds=25.0)
    node.write()
    assert node.follower.start().done == {}
    assert node.told(RootsSettling) == [RootsSettling((str(node.root),))]
    assert node.look(2) == []
    assert node.look(2) == ["artifact-1"]


def test_a_failure_is_reported_once_and_the_old_artifact_is_served(node: Node) -> None:
    node.write()
    node.follower.start()
    broken = BundleError("ranks are missing")
    node.fake.errors["triton"] = broken
    node.write()
    node.look(4)
    assert node.told(PublishFailed) == [PublishFailed("triton", broken, is_served=True)]
    node.fake.errors.clear()
    assert node.look(4) == []  # nothing changed since, so it would fail again
    node.write()
    assert node.look() == ["artifact-2"]


def test_a_failure_that_may_pass_is_tried_again_without_a_change(node: Node) -> None:
    node.write()
    changed = SourceChangedError("written meanwhile")
    node.fake.errors["triton"] = changed
    assert node.follower.start().failed == {}
    assert node.told(PublishFailed) == [PublishFailed("triton", changed, is_served=False)]
    node.fake.errors.clear()
    assert node.look() == ["artifact-1"]


def test_a_kind_fails_if_no_change_of_its_roots_can_help(node: Node) -> None:
    node.write()
    node.fake.errors["triton"] = ConfigurationError("no such field")
    assert list(node.follower.start().failed) == ["triton"]
    assert node.follower.waited_for == []


def test_roots_that_do_not_settle_are_reported_once(node: Node) -> None:
    node.write()
    node.follower.start()

    def change() -> None:
        node.write()
        node.clock.advance(INTERVAL_SECONDS)

    node.follower.run(Looks(12, change))
    (told,) = node.told(RootsUnsettled)
    assert isinstance(told, RootsUnsettled)
    assert told.changing_seconds >= 60.0
    assert told.is_served
