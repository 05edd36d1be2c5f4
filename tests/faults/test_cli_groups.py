"""Nodes that install all or none, in processes of their own: deaths, absences, a second run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.server.app import ServerConfig
from tests.support.central import running_central
from tests.support.install_cases import contents, fill, leftovers, picture
from tests.support.nodes import Cluster, clean_environment, warm_cache
from tests.support.processes import Running, running

PRESENCE_SECONDS = 5.0
"""Above what a loaded machine keeps a process waiting, below what a test may last."""
CONFIG = ServerConfig(port=0, group_presence_seconds=PRESENCE_SECONDS)
SLOW = ("--chunk-size", "4KiB", "--slots", "1", "--max-rate", "512KiB")
SLOW_BYTES, PIPE_BYTES = 1 << 20, 4096
"""Its chunks' records are more than the pipe holds: a member that is not read does not finish."""
MINE = {"mine/tuned.bin": b"compiled here"}


class Sources:
    """A source for each of two node ranks, of caches that differ; the second one is slow."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.cluster = cluster
        self.caches = [
            warm_cache(cluster.directory / "quick"),
            warm_cache(cluster.directory / "slow", SLOW_BYTES, files=16),
        ]
        for number, cache in enumerate(self.caches):
            slow = SLOW if number else ()
            stack.enter_context(cluster.source(cache, "--node-rank", str(number), *slow))


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sources]:
    directory = tmp_path_factory.mktemp("sources")
    with running_central(CONFIG) as address, ExitStack() as stack:
        env = clean_environment(directory / "home") | {"MX_SERVER_ADDRESS": address}
        yield Sources(Cluster(directory, env, model="engine"), stack)


@pytest.fixture
def nodes(tmp_path: Path, sources: Sources, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    with ExitStack() as stack:
        yield Nodes(tmp_path, request.node.name, sources, stack)


class Nodes:
    """The two members of a test's own group; each fetches from the source of its node rank."""

    def __init__(self, directory: Path, group: str, sources: Sources, stack: ExitStack) -> None:
        self.cluster = replace(sources.cluster, directory=directory)
        self.group = group
        self.caches = sources.caches
        self.roots = [fill(directory / f"root{n}", MINE) for n in range(2)]
        self.before = list(map(picture, self.roots))
        self._stack = stack

    def start(self, number: int, *args: str) -> Running:
        """Start a member."""
        group = ("--group", self.group, "--group-size", "2", "--node-rank", str(number))
        args = self.cluster.target_args(self.roots[number], *group, *args)
        member = running(
            *args, env=self.cluster.env, logs=self.cluster.directory, pipe_bytes=PIPE_BYTES
        )
        return self._stack.enter_context(member)

    def run(self) -> list[Any]:
        """Run all members to their end, which is expected to be good; return what they report."""
        with ThreadPoolExecutor(2) as threads:
            ends = list(threads.map(Running.end, [self.start(0), self.start(1)]))
        assert [code for code, _ in ends] == [0, 0], ends
        return [done["installed"][0] for _, done in ends]

    def assert_installed(self) -> None:
        for root, cache in zip(self.roots, self.caches, strict=True):
            assert contents(root) == {**contents(cache), **MINE}
            assert leftovers(root) == []

    def assert_unchanged(self) -> None:
        assert list(map(picture, self.roots)) == self.before
        assert [leftovers(root) for root in self.roots] == [[], []]
        assert self.cluster.staged() == []


def assert_failed(member: Running, *words: str) -> None:
    code, error = member.end()
    assert (code, error["type"]) == (17, "GroupFailedError"), error
    for word in ("installs nothing: ", *words):
        assert word in error["message"]
    assert error["hint"]


def me(number: int) -> str:
    return f"{os.uname().nodename}.node{number}"


def test_both_install_and_a_second_run_finds_all_or_completes(nodes: Nodes) -> None:
    first = nodes.run()
    nodes.assert_installed()
    assert first[0]["source"]["artifact_id"] != first[1]["source"]["artifact_id"]
    assert [done["total_bytes"] for done in nodes.run()] == [0, 0]
    nodes.assert_installed()
    assert nodes.cluster.run("uninstall", str(first[1]["receipt"]))[0] == 0
    assert picture(nodes.roots[1]) == nodes.before[1]
    again = nodes.run()
    assert again[0]["total_bytes"] == 0
    assert again[1]["total_bytes"] == first[1]["total_bytes"]
    nodes.assert_installed()


def test_a_source_that_dies_while_one_node_fetches(nodes: Nodes) -> None:
    rank = ("--node-rank", "2")  # another cache: any source of the same one would take over
    own = warm_cache(nodes.cluster.directory / "own", SLOW_BYTES, files=16)
    with nodes.cluster.source(own, *rank, *SLOW) as source:
        ready, fetching = nodes.start(0), nodes.start(1, *rank)
        assert ready.expect("install.staged")
        assert fetching.expect("transfer.span")
        source.stop(signal.SIGKILL)
        endpoint = source.ready["published"][0]["endpoint"]
        assert_failed(fetching, f"member {me(2)}, on this node, failed", endpoint)
        assert_failed(ready, f"member {me(2)} failed", endpoint)
    assert list(map(picture, nodes.roots)) == nodes.before
    assert leftovers(nodes.roots[0]) == []  # the other keeps what verified, for its next fetch


def test_a_member_that_never_comes(nodes: Nodes) -> None:
    alone = nodes.start(0, "--group-timeout", "1s")
    assert_failed(alone, f"nothing: waited 1 s for 1 of 2 members, not come yet (came: {me(0)})")
    nodes.assert_unchanged()
    late = nodes.start(1)
    assert_failed(late, f"member {me(0)} failed: waited 1 s for 1 of 2 members")
    nodes.assert_unchanged()


def test_a_killed_member_that_is_not_waited_for_until_it_is_given_up(nodes: Nodes) -> None:
    waiting, killed = nodes.start(0, "--group-timeout", "1s"), nodes.start(1)
    assert killed.expect("transfer.span")
    killed.kill()
    assert_failed(waiting, f"nothing: waited 1 s for {me(1)} (fetching)")
    assert list(map(picture, nodes.roots)) == nodes.before


def test_a_member_that_is_killed_when_it_has_staged(nodes: Nodes) -> None:
    slow, killed = nodes.start(1), nodes.start(0)
    assert killed.expect("group.waiting")
    killed.kill()
    assert_failed(slow, f"member {me(0)} was silent", "staged when it fell silent")
    assert list(map(picture, nodes.roots)) == nodes.before


def test_a_member_that_is_killed_when_it_has_moved(nodes: Nodes) -> None:
    """The other one, which has moved or would move now, takes back; the next run heals both."""
    stopped, killed = nodes.start(0), nodes.start(1)
    assert stopped.expect("group.waiting")
    stopped.send(signal.SIGSTOP)
    assert killed.expect("install.moved")
    killed.kill()
    stopped.send(signal.SIGCONT)
    assert_failed(stopped, f"member {me(1)} was silent")
    assert picture(nodes.roots[0]) == nodes.before[0]
    assert leftovers(nodes.roots[1]) != []
    nodes.run()
    nodes.assert_installed()


def test_an_interrupted_member_takes_the_others_back(nodes: Nodes) -> None:
    waiting, fetching = nodes.start(0), nodes.start(1)
    assert waiting.expect("group.waiting")
    assert fetching.expect("transfer.span")
    waiting.send(signal.SIGTERM)
    assert waiting.end()[0] == 130
    assert_failed(fetching, f"member {me(0)} failed: interrupted")
    nodes.assert_unchanged()


def test_a_server_that_ends_between_staging_and_vote(nodes: Nodes) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(ExitStack())
        address = server.enter_context(running_central(CONFIG))
        env = {**nodes.cluster.env, "MX_SERVER_ADDRESS": address}
        nodes.cluster = replace(nodes.cluster, env=env)
        stack.enter_context(nodes.cluster.source(nodes.caches[1], *SLOW))
        first = nodes.start(0)
        assert first.expect("group.waiting")
        second = nodes.start(1, "--node-rank", "0", "--group-member", "b")
        assert second.expect("transfer.span")
        server.close()
        for member in (second, first):
            assert_failed(member, "this member cannot reach the central server", "unavailable")
    nodes.assert_unchanged()


def test_two_living_members_of_one_name_and_a_bad_size(nodes: Nodes) -> None:
    first = nodes.start(0, "--group-member", "same")
    assert first.expect("group.joined")
    code, error = nodes.start(1, "--group-size", "3").end()
    assert (code, error["type"]) == (2, "ConfigurationError")
    assert "has size 2 according to member same, but size 3" in error["message"]
    first.send(signal.SIGTERM)
    assert first.end()[0] == 130
    nodes.assert_unchanged()
