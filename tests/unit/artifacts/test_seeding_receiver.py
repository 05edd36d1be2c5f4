"""What a target keeps for others while it installs: all of it, as it comes, and its own part once.

The seed has real memory and the bundle is a real one; the root that it is installed into is not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import cast

import pytest

from mx_artifacts.artifacts.seeding.seed import TELL_SECONDS, Seed
from mx_artifacts.artifacts.seeding.seeding_receiver import SeedingReceiver
from mx_artifacts.artifacts.source.advertisement import Advertisement
from mx_artifacts.artifacts.target.root_receiver import RootReceiver
from mx_artifacts.bundle.index import BundleMap, index_of, map_bundle
from mx_artifacts.bundle.pack import pack_tree
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.spans import Span, parts_of, spans_of
from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.core.manifest import ArtifactManifest
from mx_artifacts.memory.buffers import Buffer
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.transport.inproc import InprocTransport
from mx_artifacts.worker.partial_chunk_source import PartialChunkSource
from tests.support.artifacts import make_manifest, new_agent

PATH = "/bundle/artifact.tar"
CHUNK_SIZE = 64 * 1024


class Packed:
    """A bundle of a few files, its map and its manifest."""

    def __init__(self, root: Path) -> None:
        for name in ("a", "b", "c"):
            (root / name).mkdir(parents=True)
            (root / name / "x").write_bytes(os.urandom(100_000))
        (root / "empty").touch()
        clock = FakeClock(2_000_000_000.0)
        packed = pack_tree(root, PackRules(), Buffer, clock=clock)
        self.content = bytes(packed.memory.view)
        checksum = crc32c_hex(crc32c(self.content))
        index = index_of(packed.members, packed.memory)
        packed.memory.close()
        self.maps = {0: map_bundle(index, len(self.content), checksum)}
        self.manifest = make_manifest({PATH: self.content}, CHUNK_SIZE)

    def spans(self) -> list[Span]:
        bundle_map = self.maps[0]
        parts = (part for member in bundle_map.members for part in parts_of(member))
        return list(spans_of(0, parts, bundle_map.length))

    def data_of(self, span: Span) -> memoryview:
        return memoryview(self.content)[span.offset : span.end]


class Inner:
    """Stands in for a `RootReceiver`: wants some spans, and notes what it gets."""

    def __init__(self, wanted: Sequence[Span]) -> None:
        self._wanted = wanted
        self.waits = True
        self.written: list[tuple[int, ...]] = []
        self.log: list[str] = []

    def begin(self, manifest: ArtifactManifest, maps: Mapping[int, BundleMap]) -> Sequence[Span]:
        return self._wanted

    def write(self, span: Span, data: memoryview) -> None:
        assert not span.damage(data)
        self.written.append(tuple(part.offset for part in span.parts) or (span.offset,))

    def finish(self) -> None:
        self.log.append("finished")

    def stop(self) -> None:
        self.log.append("stopped")


class Told:
    """Stands in for an advertisement."""

    def __init__(self) -> None:
        self.reports: list[float] = []

    def report_now(self, timeout_seconds: float) -> None:
        self.reports.append(timeout_seconds)


class World:
    def __init__(self, packed: Packed, agent: InprocTransport, inner: Inner | None) -> None:
        self.packed = packed
        self.inner = inner
        self.buffer = Buffer(len(packed.content))
        self.growing = PartialChunkSource(agent, [self.buffer])
        self.told = Told()
        self.can_seed = True
        self.seed: Seed | None = None
        self.receiver = SeedingReceiver(cast(RootReceiver | None, inner), self._begin)

    def _begin(self, manifest: ArtifactManifest, maps: Mapping[int, BundleMap]) -> Seed | None:
        if self.can_seed:
            self.seed = Seed(self.growing, [self.buffer], maps)
            self.seed.advertisement = cast(Advertisement, self.told)
        return self.seed

    def available(self) -> list[tuple[int, int]] | None:
        """Return what others may read by now; None: all."""
        available = self.growing.available()
        return None if available is None else list(available[0])


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return Packed(tmp_path_factory.mktemp("packed"))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def new_world(stack: ExitStack, packed: Packed, inner: Inner | None = None) -> World:
    agent = stack.enter_context(closing(new_agent("seed")))
    world = World(packed, agent, inner)
    stack.callback(world.growing.close)
    return world


def test_all_is_kept_in_whatever_order_it_comes_headers_included(
    stack: ExitStack, packed: Packed
) -> None:
    world = new_world(stack, packed)
    spans = world.receiver.begin(packed.manifest, packed.maps)
    assert len(spans) > 1
    for span in reversed(spans):
        world.receiver.write(span, packed.data_of(span))
        for start, end in world.available() or ():
            assert bytes(world.buffer.view[start:end]) == packed.content[start:end], (
                "what others may read is as it will stay"
            )
    assert bytes(world.buffer.view) == packed.content
    assert world.available() == [(0, len(packed.content))], "nothing between spans is forgotten"


def test_chunks_are_kept_as_they_come_where_nobody_has_an_index(
    stack: ExitStack, packed: Packed
) -> None:
    world = new_world(stack, packed)
    spans = world.receiver.begin(packed.manifest, {})
    assert [span.chunk for span in spans] == list(packed.manifest.chunks)
    world.receiver.write(spans[1], packed.data_of(spans[1]))
    assert world.available() == [(CHUNK_SIZE, 2 * CHUNK_SIZE)]
    for span in (spans[0], *spans[2:]):
        world.receiver.write(span, packed.data_of(span))
    assert bytes(world.buffer.view) == packed.content


def test_the_root_gets_what_it_lacks_and_nothing_else(stack: ExitStack, packed: Packed) -> None:
    lacking = packed.spans()[1]
    inner = Inner([lacking])
    world = new_world(stack, packed, inner)
    spans = world.receiver.begin(packed.manifest, packed.maps)
    assert len(spans) == len(packed.spans()), "others want all of it"
    for span in spans:
        world.receiver.write(span, packed.data_of(span))
    assert inner.written == [tuple(part.offset for part in lacking.parts)]
    assert bytes(world.buffer.view) == packed.content


@pytest.mark.parametrize("lacks", [True, False])
def test_a_chunk_goes_to_the_root_if_it_lacks_it(
    stack: ExitStack, packed: Packed, lacks: bool
) -> None:
    probe = new_world(stack, packed)
    chunks = list(probe.receiver.begin(packed.manifest, {}))
    inner = Inner(chunks if lacks else [])
    world = new_world(stack, packed, inner)
    for span in world.receiver.begin(packed.manifest, {}):
        world.receiver.write(span, packed.data_of(span))
    assert inner.written == ([(span.offset,) for span in chunks] if lacks else [])


def test_others_are_told_once_the_root_has_all(stack: ExitStack, packed: Packed) -> None:
    inner = Inner([])
    world = new_world(stack, packed, inner)
    world.receiver.begin(packed.manifest, packed.maps)
    assert world.seed is not None
    seen = [world.seed.is_complete]
    world.receiver.finish()
    seen.append(world.seed.is_complete)
    assert inner.log == ["finished"]
    assert seen == [False, True]
    assert world.available() is None
    assert world.told.reports == [TELL_SECONDS]


def test_where_it_cannot_be_seeded_the_root_gets_its_own_part_all_the_same(
    stack: ExitStack, packed: Packed
) -> None:
    lacking = packed.spans()[:1]
    inner = Inner(lacking)
    world = new_world(stack, packed, inner)
    world.can_seed = False
    assert world.receiver.begin(packed.manifest, packed.maps) == lacking
    world.receiver.write(lacking[0], packed.data_of(lacking[0]))
    world.receiver.finish()
    assert len(inner.written) == 1
    assert inner.log == ["finished"]
    assert world.available() == []
    assert world.told.reports == []


def test_it_waits_and_stops_as_the_root_does(stack: ExitStack, packed: Packed) -> None:
    alone = new_world(stack, packed)
    assert not alone.receiver.waits
    alone.receiver.stop()
    inner = Inner([])
    world = new_world(stack, packed, inner)
    seen = [world.receiver.waits]
    inner.waits = False
    assert [*seen, world.receiver.waits] == [True, False]
    world.receiver.stop()
    assert inner.log == ["stopped"]


def test_a_seed_that_is_closed_undoes_what_began_it_once(stack: ExitStack, packed: Packed) -> None:
    world = new_world(stack, packed)
    world.receiver.begin(packed.manifest, packed.maps)
    assert world.seed is not None
    undone: list[str] = []
    world.seed.undo.callback(undone.append, "first")
    world.seed.undo.callback(undone.append, "last")
    world.seed.close()
    world.seed.close()
    assert undone == ["last", "first"]
