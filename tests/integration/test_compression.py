"""Bytes come compressed where that pays, never more than they should be, and always verified."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts import compression
from mx_artifacts.errors import (
    ChunkChecksumError,
    ConfigurationError,
    ManifestInvalidError,
    MxArtifactsError,
    RegistrationError,
    TransferFailedError,
)
from mx_artifacts.memory.pool import BufferPool
from mx_artifacts.runtime.rate_limit import RateLimit
from mx_artifacts.transport.base import Peer, PendingRead, Region, RemoteRange
from mx_artifacts.transport.faults import FaultyTransport
from mx_artifacts.worker.blocks import Blocks
from mx_artifacts.worker.extension_service import SourceService
from tests.support.artifacts import new_agent
from tests.support.fleet import Fleet, fill_cache, running_fleet
from tests.support.install_cases import contents

LARGE_BYTES = 12 << 20
SHRINKING = b"".join(b"mov.u32 %%r%d, %%ctaid.x;\n" % (n * n) for n in range(200_000))


class SlowLink(FaultyTransport):
    """A link that all reads share, and counts what it carries."""

    def __init__(self, bytes_per_second: float = 40e6) -> None:
        super().__init__(new_agent("target"), {})
        self.bytes_per_second = bytes_per_second
        self.carried = 0
        self._busy = threading.Lock()

    def post_read(
        self, peer: Peer, source: Sequence[RemoteRange], target: Sequence[tuple[Region, int]]
    ) -> PendingRead:
        length = sum(each.length for each in source)
        with self._busy:
            self.carried += length
            time.sleep(length / self.bytes_per_second)
        return super().post_read(peer, source, target)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with running_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    root = fill_cache(tmp_path / "warm", files=4)
    (root / "large.ptx").write_bytes((SHRINKING * 4)[:LARGE_BYTES])
    return root


def _fetch(
    fleet: Fleet, tmp_path: Path, cache: Path, bytes_per_second: float = 40e6, **settings: Any
) -> tuple[int, int]:
    """Fetch and compare; return the bytes carried and those of the artifact."""
    link = SlowLink(bytes_per_second)
    fetched = fleet.fetch(fleet.fetcher(lambda: link, **settings), tmp_path / "cold")
    assert contents(tmp_path / "cold") == contents(cache)
    assert not fetched.left_behind
    return link.carried, fetched.total_bytes


@pytest.mark.parametrize("resident", [True, False], ids=["resident", "slots"])
@pytest.mark.parametrize("mode", ["zstd", "none"])
def test_bytes_that_shrink_arrive_compressed(
    fleet: Fleet, tmp_path: Path, cache: Path, resident: bool, mode: str
) -> None:
    source, _ = fleet.publish(cache, resident_budget_bytes=1 << 30 if resident else 0)
    carried, total = _fetch(fleet, tmp_path, cache, compression=mode)
    assert carried == total if mode == "none" else carried < 0.3 * total
    assert (
        len(source.start().artifacts.leases) <= 1
    )  # that of the session, which may not have ended yet


def test_a_slow_link_is_noticed(fleet: Fleet, tmp_path: Path, cache: Path) -> None:
    (cache / "large.ptx").write_bytes((SHRINKING * 20)[: 8 * LARGE_BYTES])
    fleet.publish(cache)
    carried, total = _fetch(fleet, tmp_path, cache, compression="auto")
    assert carried < 0.7 * total


def test_bytes_that_do_not_shrink_arrive_uncompressed(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm", files=4, large=LARGE_BYTES)
    fleet.publish(cache)
    carried, total = _fetch(fleet, tmp_path, cache, compression="zstd")
    assert carried == total


def test_a_fast_link_is_left_alone(
    fleet: Fleet, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Blocks, "lease", lambda *_: pytest.fail("a block was asked for"))
    fleet.publish(cache)
    fleet.fetch(fleet.fetcher(compression="auto"), tmp_path / "cold")
    assert contents(tmp_path / "cold") == contents(cache)


@pytest.mark.parametrize("side", ["source", "target", "library"])
def test_a_source_that_does_not_compress_is_read_uncompressed(
    fleet: Fleet, tmp_path: Path, cache: Path, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if side == "library":
        monkeypatch.setattr(
            "mx_artifacts.transfer.artifact.compression_policy.encodings", lambda: ()
        )
    fleet.publish(cache, compression="none" if side == "source" else "auto")
    mode = "none" if side == "target" else "auto"
    carried, total = _fetch(fleet, tmp_path, cache, compression=mode)
    assert carried == total


def test_a_source_that_refuses_after_all_is_read_from_plainly(
    fleet: Fleet, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mx_artifacts.transfer.artifact.source.encodings", lambda: ("lz4",))
    fleet.publish(cache)
    carried, total = _fetch(fleet, tmp_path, cache, compression="zstd")
    assert carried == total


def test_a_source_without_memory_for_it_is_read_from_plainly(
    fleet: Fleet, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> BufferPool:
        raise RegistrationError("memlock")

    fleet.publish(cache)
    monkeypatch.setattr("mx_artifacts.worker.blocks.BufferPool", fail)
    carried, total = _fetch(fleet, tmp_path, cache, compression="zstd")
    assert carried == total


def test_to_demand_what_is_not_installed_is_refused(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "encodings", lambda: ())
    with pytest.raises(ConfigurationError, match="zstd") as caught:
        fleet.fetcher(compression="zstd")
    with pytest.raises(ConfigurationError, match="zstd"):
        fleet.publisher(compression="zstd")
    assert "mx-artifacts[zstd]" in caught.value.hint()


def test_many_targets_cost_one_compression(
    fleet: Fleet, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(data: memoryview) -> bytes:
        made.append(len(data))
        return compression.compress(data)

    monkeypatch.setattr("mx_artifacts.worker.blocks.compress", counted)
    fleet.publish(cache)
    threads = [
        threading.Thread(
            target=fleet.fetch,
            args=(
                fleet.fetcher(SlowLink, compression="zstd", bundle_root=tmp_path / f"turns{n}"),
                tmp_path / f"cold{n}",
            ),
        )
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(contents(tmp_path / f"cold{n}") == contents(cache) for n in range(3))
    assert sum(made) < 1.1 * sum(p.stat().st_size for p in cache.rglob("*") if p.is_file())


def test_a_seed_compresses_too(fleet: Fleet, tmp_path: Path, cache: Path) -> None:
    source, _ = fleet.publish(cache)
    fleet.fetch(fleet.fetcher(seed=True), tmp_path / "first")
    source.close()
    carried, total = _fetch(fleet, tmp_path, cache, compression="zstd")
    assert carried < 0.5 * total


@pytest.fixture
def granted(monkeypatch: pytest.MonkeyPatch) -> Counter[float | None]:
    """Return how many bytes each rate limit let by, by its bytes a second."""
    counted: Counter[float | None] = Counter()
    reserve, give_back = RateLimit.reserve, RateLimit.give_back

    def counted_reserve(limit: RateLimit, length: int, max_wait_seconds: float) -> float | None:
        seconds = reserve(limit, length, max_wait_seconds)
        counted[limit._bytes_per_second] += 0 if seconds is None else length
        return seconds

    def counted_give_back(limit: RateLimit, length: int) -> None:
        give_back(limit, length)
        counted[limit._bytes_per_second] -= length

    monkeypatch.setattr(RateLimit, "reserve", counted_reserve)
    monkeypatch.setattr(RateLimit, "give_back", counted_give_back)
    return counted


def test_a_rate_limit_counts_what_is_carried(
    fleet: Fleet, tmp_path: Path, cache: Path, granted: Counter[float | None]
) -> None:
    fleet.publish(cache, max_bytes_per_second=2e6)
    carried, total = _fetch(fleet, tmp_path, cache, compression="zstd", max_bytes_per_second=4e6)
    assert carried < 0.5 * total
    assert granted[2e6] == granted[4e6] == carried


def test_a_source_that_limits_its_rate_is_a_slow_link(
    fleet: Fleet, tmp_path: Path, cache: Path
) -> None:
    """Though its bytes come at once when it has granted them."""
    fleet.publish(cache, max_bytes_per_second=5e6)
    carried, total = _fetch(fleet, tmp_path, cache, 1e9, compression="auto")
    assert carried < 0.5 * total


def test_bytes_that_do_not_shrink_use_no_more_of_a_rate_limit(
    fleet: Fleet, tmp_path: Path, granted: Counter[float | None]
) -> None:
    cache = fill_cache(tmp_path / "warm", files=4, large=LARGE_BYTES)
    fleet.publish(cache, max_bytes_per_second=10e6)
    carried, total = _fetch(fleet, tmp_path, cache, 1e9, compression="auto")
    assert carried == total
    assert granted[10e6] < 1.1 * total  # a few blocks were tried


def test_a_source_that_limits_its_rate_beyond_its_compressor_is_left_alone(
    fleet: Fleet, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Blocks, "lease", lambda *_: pytest.fail("a block was asked for"))
    fleet.publish(cache, max_bytes_per_second=1e9)
    fleet.fetch(fleet.fetcher(compression="auto"), tmp_path / "cold")
    assert contents(tmp_path / "cold") == contents(cache)


# --- sources that lie -----------------------------------------------------------------------------


def _bomb(length: int) -> bytes:
    return compression.compress(memoryview(bytes(64 << 20)))


def _truncated(length: int) -> bytes:
    return compression.compress(memoryview(SHRINKING[:length]))[:-9]


def _short(length: int) -> bytes:
    return compression.compress(memoryview(SHRINKING[: length - 1]))


def _other(length: int) -> bytes:
    return compression.compress(memoryview(SHRINKING[-length:]))


def _failure(fleet: Fleet, tmp_path: Path) -> MxArtifactsError:
    """Return what a fetch from the only source fails by."""
    with pytest.raises(TransferFailedError) as caught:
        fleet.fetch(fleet.fetcher(compression="zstd"), tmp_path / "cold")
    assert not (tmp_path / "cold").exists()
    ((_, error),) = caught.value.attempts
    return error


@pytest.mark.parametrize("frame", [_bomb, _truncated, _short, _other])
def test_a_source_that_lies_is_left_behind(
    fleet: Fleet,
    tmp_path: Path,
    cache: Path,
    frame: Callable[[int], bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mx_artifacts.worker.blocks.compress", lambda data: frame(len(data)))
    fleet.publish(cache)
    assert isinstance(_failure(fleet, tmp_path), ChunkChecksumError)


@pytest.mark.parametrize(
    "claim", [{"stored_length": 0}, {"stored_length": 1 << 40}, {"encoding": "brotli"}]
)
def test_a_source_that_claims_nonsense_is_left_behind(
    fleet: Fleet,
    tmp_path: Path,
    cache: Path,
    claim: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Liar(SourceService):
        def PrepareBlock(self, request: Any, context: Any) -> Any:
            answer = super().PrepareBlock(request, context)
            for name, value in claim.items():
                setattr(answer, name, value)
            return answer

    monkeypatch.setattr("mx_artifacts.worker.artifact_service.SourceService", Liar)
    fleet.publish(cache)
    error = _failure(fleet, tmp_path)
    assert isinstance(error, ManifestInvalidError)
    assert "for a block of" in str(error)


def test_others_do_what_a_liar_owed(
    fleet: Fleet, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mx_artifacts.worker.blocks.compress", lambda data: _truncated(len(data)))
    bad, _ = fleet.publish(cache)
    fleet.publish(cache, compression="none")
    fetched = fleet.fetch(
        fleet.fetcher(lambda: SlowLink(10e6), compression="zstd"), tmp_path / "cold"
    )
    assert contents(tmp_path / "cold") == contents(cache)
    assert list(fetched.left_behind) == [bad.start().server.endpoint]
