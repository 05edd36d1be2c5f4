"""A compiler rewrites Triton groups while they are published: what is installed is as it wrote it.

All of the product is in the way: publisher, central server, worker service, NIXL, installer.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
from mx_artifacts.artifacts.target.fetch_values import FetcherSettings, FetchResult
from mx_artifacts.artifacts.target.suitability import SourceWanted
from mx_artifacts.bundle import pack
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity, SourceType
from mx_artifacts.fetcher import ArtifactFetcher
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.publisher import ArtifactPublisher, PublishResult
from mx_artifacts.transport.registry import create_transport
from tests.support.nodes import Cluster
from tests.support.processes import run_cli, serving
from tests.support.trees import read_tree
from tests.support.triton_writer import (
    BUSY,
    CALM,
    GROUP,
    generations_in,
    key,
    rewriting,
    rewriting_process,
    write_group,
    write_groups,
)

PUBLICATIONS = 50
STATED = ("cuda_version=12.8", "gpu_arch=sm90", "triton_version=3", "triton_key=k")
WORDS: tuple[str, ...] = ("--kind", "triton", "--framework", "vllm")
WORDS += tuple(word for pair in STATED for word in ("--identity", pair))
TRITON = get_kind("triton")
KEYS = {key(number) for number in range(BUSY + CALM)}
CALM_KEYS = {key(number) for number in range(BUSY, BUSY + CALM)}


class Road:
    """A source and a target, in this process, with one NIXL agent each."""

    def __init__(self, place: Path, client: CentralClient, model: str, stack: ExitStack) -> None:
        self._client = client
        self._identity = SourceIdentity(
            mx_source_type=SourceType.TRITON_CACHE, model_name=model, gpu_arch="sm90"
        )
        self._settings = PublisherSettings.from_environment(
            env={}, bundle_root=place / "sealed", port=0
        )
        self._agent = create_transport("nixl", f"source-{uuid.uuid4().hex}")
        stack.callback(self._agent.close)
        self._fetcher = stack.enter_context(
            ArtifactFetcher(
                client=client,
                settings=FetcherSettings.from_environment(
                    env={}, bundle_root=place / "fetched", state_directory=place / "state"
                ),
                transport_factory=lambda: create_transport("nixl", f"target-{uuid.uuid4().hex}"),
            )
        )

    def publisher(self) -> ArtifactPublisher:
        return ArtifactPublisher(
            client=self._client, transport=self._agent, settings=self._settings
        )

    def publish(self, publisher: ArtifactPublisher, root: Path) -> PublishResult:
        return publisher.publish(TRITON, self._identity, {"": root})

    def fetch(self, published: PublishResult, root: Path) -> FetchResult:
        wanted = SourceWanted(artifact_id=published.artifact_id)
        return self._fetcher.fetch_and_install(TRITON, self._identity, {"": root}, wanted=wanted)


@pytest.fixture(name="road")
def _road(tmp_path: Path, server_address: str, request: pytest.FixtureRequest) -> Iterator[Road]:
    with ExitStack() as stack:
        client = CentralClient(server_address)
        stack.callback(client.close)
        yield Road(tmp_path, client, request.node.nodeid, stack)


def check(root: Path, left_out: Mapping[str, str]) -> dict[str, int]:
    """Check every group that was installed in `root`; return the generation of each."""
    generations = generations_in(root)
    assert [each for each in generations.values() if len(each) > 1] == []
    for name in generations:
        children = json.loads((root / name / GROUP).read_bytes())["child_paths"]
        assert children == {child: str(root / name / child) for child in children}
    assert set(generations) | set(left_out) == KEYS
    assert set(generations) & set(left_out) == set()
    assert set(generations) >= CALM_KEYS
    return {name: found.pop() for name, found in generations.items()}


def entries_left_out(published: PublishResult) -> dict[str, str]:
    (root,) = published.roots
    return {skip.path: skip.reason for skip in root.report.skipped if "/" not in skip.path}


def test_every_group_of_many_publications_is_of_one_generation(
    road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "MIN_AGE_SECONDS", 0.05)  # as in test_triton_mutator.py
    monkeypatch.setattr(pack, "_PATIENCE_SECONDS", 0.2)
    cache = write_groups(tmp_path / "warm")
    found: set[int] = set()
    with rewriting(cache) as returned:
        for number in range(PUBLICATIONS):
            root = tmp_path / f"cold{number}"
            with road.publisher() as publisher:
                published = road.publish(publisher, cache)
                fetched = road.fetch(published, root)
            assert fetched.report.roots[0].dropped == {}
            found |= set(check(root, entries_left_out(published)).values())
    assert returned[0][0] > PUBLICATIONS  # it did rewrite all the while
    assert len(found) > 10  # and what it rewrote did arrive now and then


def test_the_same_through_the_command_line(cluster: Cluster, tmp_path: Path) -> None:
    """With the packer's own patience, and so with a compiler that gives it a chance."""
    cache = write_groups(tmp_path / "warm")
    words = (*WORDS, "--model", cluster.model, "--bundle-root", str(tmp_path / "bundles"))
    with rewriting_process(cache, pause_seconds=0.3):
        for number in range(2):
            root = tmp_path / f"cold{number}"
            publish = ("publish", *words, "--root", str(cache))
            with serving(*publish, env=cluster.env, logs=tmp_path) as source:
                done = run_cli(
                    *("fetch-and-install", *words, "--root", str(root), "--format", "json"),
                    env=cluster.env,
                )
            assert done.returncode == 0, done.stderr
            ((installed,),) = (each["roots"] for each in json.loads(done.stdout)["installed"])
            assert installed["dropped"] == {}
            ((packed,),) = (each["roots"] for each in source.ready["published"])
            left_out = {
                path: reason
                for reason, skipped in packed["skipped"].items()
                for path in skipped["examples"]
                if "/" not in path
            }
            assert len(check(root, left_out)) == len(installed["installed"])


def test_kernels_compiled_later_come_with_the_next_publication(road: Road, tmp_path: Path) -> None:
    """And whoever took, or takes, the earlier one is not disturbed."""
    cache, cold = write_groups(tmp_path / "warm"), tmp_path / "cold"
    with road.publisher() as early, road.publisher() as late:
        first = road.publish(early, cache)
        road.fetch(first, cold)
        before = read_tree(cold)
        for number in range(BUSY + CALM, BUSY + CALM + 13):
            write_group(cache, number, 0)
        second = road.publish(late, cache)
        (root,) = road.fetch(second, cold).report.roots
        assert (set(root.kept), len(root.installed)) == (KEYS, 13)
        assert set(generations_in(cold)) == {path.name for path in cache.iterdir()}
        assert read_tree(cold).items() >= before.items()
        road.fetch(second, tmp_path / "new")
        assert len(generations_in(tmp_path / "new")) == len(KEYS) + 13
        road.fetch(first, tmp_path / "old")
        assert set(generations_in(tmp_path / "old")) == KEYS
