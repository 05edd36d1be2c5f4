"""When bytes come compressed: by what the link and the compressor were seen to take."""

from __future__ import annotations

import pytest

from mx_artifacts.compression import AUTO, NONE, ZSTD, compress, decompress
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.runtime.rate_limit import RateLimit
from mx_artifacts.transfer.artifact.compression_policy import (
    PROBE_EVERY,
    PROBES,
    CompressionPolicy,
    LinkMeter,
)
from mx_artifacts.worker.blocks import _ENTRY_BYTES, _KeptFrame

MIB = 1 << 20
SPAN = 4 * MIB


def _carry(link: LinkMeter, clock: FakeClock, count: int, seconds: float, span: int = SPAN) -> None:
    for _ in range(count):
        with link.carrying(span):
            clock.sleep(seconds)


def _encoding(link: LinkMeter, mode: str = AUTO, rate: float | None = None) -> CompressionPolicy:
    encoding = CompressionPolicy(mode, rate, link)
    encoding.on_offer((ZSTD,))
    return encoding


def test_a_link_is_measured_while_it_carries_and_after_it_connected() -> None:
    clock = FakeClock()
    link = LinkMeter(clock)
    _carry(link, clock, 1, seconds=9.0)
    assert link.seconds_per_byte() is None
    clock.sleep(100.0)
    with link.carrying(SPAN):
        clock.sleep(1.0)
        with link.carrying(SPAN):
            clock.sleep(1.0)
    assert link.seconds_per_byte() == pytest.approx(2.0 / (2 * SPAN))
    _carry(link, clock, 40, seconds=0.5)
    assert link.seconds_per_byte() == pytest.approx(0.5 / SPAN, rel=0.1)


def test_a_failed_read_does_not_count_as_carried() -> None:
    clock = FakeClock()
    link = LinkMeter(clock)
    with pytest.raises(OSError, match="lost"), link.carrying(SPAN):
        raise OSError("lost")
    _carry(link, clock, 2, seconds=1.0)
    assert link.seconds_per_byte() == pytest.approx(1.0 / SPAN)


@pytest.mark.parametrize(
    ("span_seconds", "stored", "besides", "better"),
    [
        (0.17, SPAN // 4, 0.02, True),  # 200 Mbit/s
        (0.17, SPAN, 0.02, False),
        (0.17, SPAN * 8 // 10, 0.2, False),
        (0.001, SPAN // 4, 0.0, False),  # 4 GB/s
    ],
)
def test_it_pays_where_the_link_is_slower(
    span_seconds: float, stored: int, besides: float, better: bool
) -> None:
    clock = FakeClock()
    link = LinkMeter(clock)
    encoding = _encoding(link)
    assert not encoding.should_compress(SPAN)
    _carry(link, clock, 3, span_seconds)
    probed = [encoding.should_compress(SPAN) for _ in range(PROBES + 2)]
    assert sum(probed) == (PROBES if span_seconds > 0.1 else 0)
    for _ in range(PROBES):
        encoding.record(SPAN, stored, besides, at_once=1)
    decided = [encoding.should_compress(SPAN) for _ in range(2 * PROBE_EVERY)]
    expected = 2 * PROBE_EVERY if better else (2 if span_seconds > 0.1 else 0)
    assert sum(decided) == expected
    assert not encoding.should_compress(1000)


def test_the_rate_limit_of_a_target_counts_as_a_slow_link() -> None:
    clock = FakeClock()
    link = LinkMeter(clock)
    _carry(link, clock, 3, 0.001)
    assert not _encoding(link).should_compress(SPAN)
    assert _encoding(link, rate=10e6).should_compress(SPAN)


def test_a_source_with_a_rate_limit_is_a_slow_link_from_the_start() -> None:
    def limited(bytes_per_second: int, link: LinkMeter) -> CompressionPolicy:
        encoding = CompressionPolicy(AUTO, None, link)
        encoding.on_offer((ZSTD,), bytes_per_second)
        return encoding

    assert limited(10_000_000, LinkMeter()).should_compress(SPAN)
    assert not limited(1_000_000_000, LinkMeter()).should_compress(SPAN)
    clock = FakeClock()
    link = LinkMeter(clock)
    encoding = limited(10_000_000, link)
    for _ in range(4):  # three others have their share of it
        with link.waiting():
            clock.sleep(4 * SPAN / 10e6)
        with link.carrying(SPAN):
            clock.sleep(0.001)
    assert link.seconds_per_byte() == pytest.approx(4 / 10e6, rel=0.01)
    for _ in range(PROBES):
        encoding.record(SPAN, SPAN // 2, 2 * SPAN / 20e6, at_once=1)
    assert encoding.is_worthwhile, "what seems much for it alone is little beside its share"


def test_waiting_time_does_not_count_as_time_of_the_link() -> None:
    clock = FakeClock()
    link = LinkMeter(clock)
    with link.waiting():
        clock.sleep(9.0)
    with link.carrying(SPAN):
        clock.sleep(9.0)
    _carry(link, clock, 2, seconds=1.0)
    assert link.seconds_per_byte() == pytest.approx(1.0 / SPAN)


def test_all_or_nothing_where_it_is_demanded() -> None:
    assert _encoding(LinkMeter(), ZSTD).should_compress(1)
    assert not _encoding(LinkMeter(), NONE).should_compress(SPAN)
    encoding = _encoding(LinkMeter(), ZSTD)
    encoding.disable()
    assert not encoding.should_compress(SPAN)


def test_a_frame_fills_what_it_should_and_nothing_else() -> None:
    data = bytes(range(256)) * 4096
    into = memoryview(bytearray(len(data)))
    frame = compress(memoryview(data))
    assert decompress(frame, into) == ""
    assert into == data
    for wrong in (frame[:-1], b"", frame[4:], compress(memoryview(data + b"?"))):
        assert decompress(wrong, into)


def test_frames_are_kept_up_to_a_size() -> None:
    kept = _KeptFrame(2 * (100 + _ENTRY_BYTES))
    made: list[int] = []

    def get(number: int) -> bytes:
        def make() -> bytes:
            made.append(number)
            return bytes(100)

        return kept.get(("artifact", 0, number, 1), make, 1.0)

    for number in (1, 2, 1, 3, 1, 2):
        get(number)
    assert made == [1, 2, 3, 2]
    with pytest.raises(OSError, match="disk"):
        kept.get(("artifact", 0, 9, 1), lambda: _raise(OSError("disk")), 1.0)
    assert kept.get(("artifact", 0, 9, 1), lambda: b"better", 1.0) == b"better"


def _raise(error: Exception) -> bytes:
    raise error


def test_returned_bytes_are_available_to_others() -> None:
    clock = FakeClock()
    rate = RateLimit(100.0, clock)
    assert rate.reserve(100, 9.0) == 0.0
    rate.give_back(80)
    assert rate.reserve(100, 9.0) == pytest.approx(0.2)
