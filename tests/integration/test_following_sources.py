"""A target that follows goes forward only, and outlives rounds that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mx_artifacts.bundle import pack
from mx_artifacts.identity.identify import ProbedIdentity
from mx_artifacts.observability.catalogue import FollowFailed
from mx_artifacts.observability.events import Event
from mx_artifacts.server.app import ServerConfig
from mx_artifacts.workflows.fetch_kinds import FetchKindsRequest
from mx_artifacts.workflows.follow_settings import FollowSettings
from mx_artifacts.workflows.follow_sources import SourcesFollower
from mx_artifacts.workflows.kind_outcomes import KindOutcomes
from mx_artifacts.workflows.selected_kind import SelectedKind
from tests.support.central import running_central
from tests.support.triton_node import IDENTITY, TRITON, Client, Node, cubins

PROBED = ProbedIdentity(IDENTITY, {}, "")


class Looks:
    """Lets a follower look so many times."""

    def __init__(self, count: int) -> None:
        self._left = count

    def wait(self, timeout_seconds: float | None = None) -> bool:
        self._left -= 1
        return self._left < 0

    def run(self, work: Callable[[], object]) -> None:
        work()


class Target:
    """Follows sources of Triton, and notes what was installed and which looks failed."""

    def __init__(self, node: Node, root: Path, stack: ExitStack) -> None:
        request = FetchKindsRequest((SelectedKind(TRITON, {"": root}),), lambda _: PROBED)
        self.root = root
        self.installed: list[str] = []
        self.failures: list[Event] = []
        self._follower = SourcesFollower(
            stack.enter_context(node.fetcher()),
            request,
            KindOutcomes(),
            FollowSettings(interval_seconds=0.0),
            on_fetched=lambda each: self.installed.append(each.result.source.artifact_id),
            events=self.failures.append,
        )

    def look(self, count: int = 3) -> list[str]:
        """Look so many times; return the ids of what was installed meanwhile."""
        before = len(self.installed)
        self._follower.run(Looks(count))
        return self.installed[before:]


@pytest.fixture(name="nodes")
def _nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Node, Node, ExitStack]]:
    monkeypatch.setattr(pack, "MIN_AGE_SECONDS", 0.05)  # nobody writes while it is packed
    with ExitStack() as stack:
        address = stack.enter_context(running_central(ServerConfig("127.0.0.1", 0)))
        client = Client(address)
        stack.enter_context(client)
        yield Node(tmp_path / "a", client, stack), Node(tmp_path / "b", client, stack), stack


def test_publishers_of_different_artifacts_do_not_take_turns(
    nodes: tuple[Node, Node, ExitStack], tmp_path: Path
) -> None:
    a, b, stack = nodes
    b.write_groups(2)
    publisher = a.publisher()
    of_a, of_b = a.publish(publisher), b.publish(b.publisher())
    target = Target(a, tmp_path / "cold", stack)
    assert sorted(target.look(6)) == sorted([of_a.artifact_id, of_b.artifact_id])
    a.write_groups(3)
    again = publisher.republish(of_a)
    assert target.look() == [again.artifact_id]
    assert cubins(target.root) == {**cubins(a.root), **cubins(b.root)}
    assert target.look() == []
    assert target.failures == []


def test_a_failed_check_is_reported_once_and_the_next_check_continues(
    nodes: tuple[Node, Node, ExitStack], tmp_path: Path
) -> None:
    node, _, stack = nodes
    published = node.publish(node.publisher())
    (tmp_path / "cold").write_text("in the way")
    target = Target(node, tmp_path / "cold", stack)
    assert target.look() == []
    (failure,) = target.failures
    assert isinstance(failure, FollowFailed)
    assert failure.kind == "triton"
    (tmp_path / "cold").unlink()
    assert target.look() == [published.artifact_id]
    assert target.failures == [failure]


def test_no_source_is_no_failure(nodes: tuple[Node, Node, ExitStack], tmp_path: Path) -> None:
    node, _, stack = nodes
    target = Target(node, tmp_path / "cold", stack)
    assert target.look() == []
    assert target.failures == []
