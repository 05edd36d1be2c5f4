"""A publisher replaces what it serves: whoever looks finds the old artifact or the new one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mx_artifacts.bundle import pack
from mx_artifacts.errors import (
    BackendUnavailableError,
    ConfigurationError,
    NothingToPublishError,
)
from mx_artifacts.server.app import ServerConfig
from tests.support.central import running_central
from tests.support.triton_node import IDENTITY, OTHER, Client, Node, cubins


@pytest.fixture(name="node")
def _node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(pack, "MIN_AGE_SECONDS", 0.05)  # nobody writes while it is packed
    with ExitStack() as stack:
        address = stack.enter_context(running_central(ServerConfig("127.0.0.1", 0)))
        client = Client(address)
        stack.enter_context(client)
        yield Node(tmp_path, client, stack)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_unchanged_roots_are_not_published_again(node: Node) -> None:
    publisher = node.publisher()
    published = node.publish(publisher)
    assert publisher.republish(published) is published
    assert node.fetch("cold") == cubins(node.root)


def test_a_lister_sees_one_source_all_the_time(node: Node) -> None:
    publisher = node.publisher()
    published = node.publish(publisher)
    served = {published.artifact_id}
    seen: list[set[str]] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.append({node.client.artifact_of(each) for each in (IDENTITY, OTHER)})
        seen.append(set())  # without an error so far

    lister = threading.Thread(target=look)
    lister.start()
    try:
        for number in range(2, 6):
            node.write_groups(number)
            before, published = published, publisher.republish(published)
            assert published is not before
            assert published.mx_source_id == before.mx_source_id
            served.add(published.artifact_id)
    finally:
        stop.set()
        lister.join()
    assert seen.pop() == set()
    assert set().union(*seen) <= served
    assert node.fetch("cold") == node.fetch("cold2", OTHER) == cubins(node.root)


def test_both_may_exceed_the_memory_together(node: Node) -> None:
    publisher = node.publisher(budget_bytes=80_000)  # of one artifact of about 50,000 bytes
    published = node.publish(publisher)
    for number in range(2, 4):
        node.write_groups(number)
        published = publisher.republish(published)
        assert node.fetch(f"cold{number}") == cubins(node.root)


def test_the_old_artifact_is_served_if_the_roots_cannot_be_sealed(node: Node) -> None:
    publisher = node.publisher()
    published = node.publish(publisher)
    warm = cubins(node.root)
    aside = node.root.rename(node.root.with_name("aside"))
    with pytest.raises(NothingToPublishError):
        publisher.republish(published)
    assert node.fetch("cold") == warm
    aside.rename(node.root)
    node.write_groups(2)
    assert publisher.republish(published).file_count == 12
    with pytest.raises(ConfigurationError, match="does not serve artifact"):
        publisher.republish(published)


def test_an_answer_that_is_lost_leaves_what_is_served(node: Node) -> None:
    """The server has heard of the new one, and hears of the old one again at the next beat."""
    publisher = node.publisher()
    published = node.publish(publisher)
    warm = cubins(node.root)
    node.write_groups(2)
    node.client.losses = 4  # both announcements, and both attempts to take them back
    with pytest.raises(BackendUnavailableError):
        publisher.republish(published)
    node.client.losses = 0
    eventually(lambda: node.client.artifact_of(IDENTITY) == published.artifact_id)
    eventually(lambda: node.client.artifact_of(OTHER) == published.artifact_id)
    assert node.fetch("cold") == warm
    again = publisher.republish(published)
    assert node.client.artifact_of(OTHER) == again.artifact_id
    assert node.fetch("cold2") == cubins(node.root)
