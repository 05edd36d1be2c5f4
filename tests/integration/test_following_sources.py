"""A target that follows goes forward only, and outlives rounds that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from mx_artifact_cli.fetch.follow import FetchFollower
from mx_artifact_cli.output import Output
from mx_artifact_cli.selection import SelectedKind
from mx_artifact_cli.signals import StopRequest
from mx_artifacts.artifacts.target.suitability import ANY_SOURCE
from mx_artifacts.bundle import pack
from mx_artifacts.identity.identify import ProbedIdentity
from mx_artifacts.server.app import ServerConfig
from tests.support.central import running_central
from tests.support.triton_node import IDENTITY, TRITON, Client, Node, cubins

PROBED = ProbedIdentity(IDENTITY, {}, "")


class Looks:
    """Lets a follower look so many times."""

    def __init__(self, count: int) -> None:
        self._left = count

    def wait(self, timeout_seconds: float) -> bool:
        self._left -= 1
        return self._left < 0

    def run(self, work: Callable[[], object]) -> None:
        work()


class Target:
    def __init__(self, node: Node, root: Path, output: Output, stack: ExitStack) -> None:
        fetcher = stack.enter_context(node.fetcher())
        self._follower = FetchFollower(output, fetcher, replace=False)
        self._followed = self._follower.add(SelectedKind(TRITON, {"": root}), PROBED, ANY_SOURCE)
        self.root = root

    def look(self, count: int = 3) -> set[str]:
        """Look so many times; return the ids of what was installed until then."""
        self._follower.run(cast(StopRequest, Looks(count)), 0.0)
        return set(self._followed.installed_ids)


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
    nodes: tuple[Node, Node, ExitStack], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, stack = nodes
    b.write_groups(2)
    publisher = a.publisher()
    of_a, of_b = a.publish(publisher), b.publish(b.publisher())
    target = Target(a, tmp_path / "cold", Output(), stack)
    assert target.look(6) == {of_a.artifact_id, of_b.artifact_id}
    told = capsys.readouterr()
    assert told.out.count("triton: ") == 2
    a.write_groups(3)
    again = publisher.republish(of_a)
    assert target.look() == {of_a.artifact_id, of_b.artifact_id, again.artifact_id}
    assert capsys.readouterr().out.count("triton: installed") == 1
    assert cubins(target.root) == {**cubins(a.root), **cubins(b.root)}
    assert target.look() == {of_a.artifact_id, of_b.artifact_id, again.artifact_id}
    assert capsys.readouterr() == ("", "")


def test_a_look_that_fails_is_told_once_and_the_next_goes_on(
    nodes: tuple[Node, Node, ExitStack], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node, _, stack = nodes
    published = node.publish(node.publisher())
    (tmp_path / "cold").write_text("in the way")
    target = Target(node, tmp_path / "cold", Output(), stack)
    assert target.look() == set()
    assert capsys.readouterr().err.count("a look for something new failed") == 1
    (tmp_path / "cold").unlink()
    assert target.look() == {published.artifact_id}
    assert capsys.readouterr().err == ""


def test_no_source_is_no_failure(
    nodes: tuple[Node, Node, ExitStack], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node, _, stack = nodes
    target = Target(node, tmp_path / "cold", Output(), stack)
    assert target.look() == set()
    assert capsys.readouterr() == ("", "")
