"""What is read at once: every wanted part in one span, in order, within bounds, verified."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.bundle.index import CHECKSUM_UNIT_BYTES, MappedMember
from mx_artifacts.bundle.spans import (
    MAX_GAP_BYTES,
    MAX_SPAN_BYTES,
    MIN_SPAN_BYTES,
    SPANS_IN_BUNDLE,
    Part,
    parts_of,
    span_of_chunk,
    spans_of,
)
from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.core.manifest import ManifestChunk


def member(
    size: int, offset: int = 0, *, blocks: tuple[int, ...] = (), checksum: int = 0
) -> MappedMember:
    return MappedMember("m", False, size, 0o644, 0, offset, checksum, blocks, offset - 512)


def part(offset: int, length: int) -> Part:
    return Part(member(length, offset), 0, length, 0)


# --- parts ---------------------------------------------------------------------------------------


def test_a_member_of_one_block_is_one_part_and_an_empty_one_none() -> None:
    assert parts_of(member(0)) == []
    whole = member(CHECKSUM_UNIT_BYTES, checksum=7)
    assert parts_of(whole) == [Part(whole, 0, CHECKSUM_UNIT_BYTES, 7)]


def test_a_longer_member_is_cut_into_its_blocks() -> None:
    long = member(2 * CHECKSUM_UNIT_BYTES + 1, 1000, blocks=(1, 2, 3), checksum=9)
    parts = parts_of(long)
    assert [(each.position, each.length, each.checksum) for each in parts] == [
        (0, CHECKSUM_UNIT_BYTES, 1),
        (CHECKSUM_UNIT_BYTES, CHECKSUM_UNIT_BYTES, 2),
        (2 * CHECKSUM_UNIT_BYTES, 1, 3),
    ]
    assert [each.offset for each in parts] == [1000 + n * CHECKSUM_UNIT_BYTES for n in range(3)]


# --- spans ---------------------------------------------------------------------------------------

gaps = st.integers(0, 3 * MAX_GAP_BYTES)
lengths = st.integers(1, 2 * MIN_SPAN_BYTES) | st.just(CHECKSUM_UNIT_BYTES)


@given(st.lists(st.tuples(gaps, lengths), max_size=20), st.integers(0, 1 << 40))
def test_spans_have_every_part_once_in_order_and_within_their_bounds(
    drawn: list[tuple[int, int]], bundle_bytes: int
) -> None:
    parts, end = [], 0
    for gap, length in drawn:
        parts.append(part(end + gap, length))
        end += gap + length
    spans = list(spans_of(3, parts, bundle_bytes))
    assert [each for span in spans for each in span.parts] == parts
    limit = min(MAX_SPAN_BYTES, max(MIN_SPAN_BYTES, bundle_bytes // SPANS_IN_BUNDLE))
    for span in spans:
        assert span.file_index == 3
        assert span.offset == span.parts[0].offset
        assert span.end == span.parts[-1].offset + span.parts[-1].length
        assert span.length <= limit or len(span.parts) == 1
        read_along = span.length - sum(each.length for each in span.parts)
        assert read_along <= MAX_GAP_BYTES * (len(span.parts) - 1)


def test_neighbours_are_read_together_and_distant_ones_apart() -> None:
    near = [part(0, 10), part(10 + MAX_GAP_BYTES, 10)]
    assert len(list(spans_of(0, near, 1 << 40))) == 1
    far = [part(0, 10), part(11 + MAX_GAP_BYTES, 10)]
    assert len(list(spans_of(0, far, 1 << 40))) == 2


def test_a_span_is_as_long_as_the_bundle_s_size_says() -> None:
    small = MIN_SPAN_BYTES // 2
    parts = [part(number * small, small) for number in range(8)]
    for bundle_bytes, count in ((0, 4), (2 * SPANS_IN_BUNDLE * MIN_SPAN_BYTES, 2), (1 << 40, 1)):
        assert len(list(spans_of(0, parts, bundle_bytes))) == count


# --- verification --------------------------------------------------------------------------------


def content_parts(contents: list[bytes], gap: int) -> tuple[list[Part], bytearray]:
    parts, data = [], bytearray()
    for content in contents:
        of = member(len(content), len(data) + 100, checksum=crc32c(content))
        parts += parts_of(of)
        data += content + bytes(gap)
    return parts, data[: len(data) - gap]


def test_each_part_is_verified_by_itself_and_what_is_between_is_not_looked_at() -> None:
    parts, data = content_parts([b"first", b"second", b"third"], gap=7)
    (span,) = spans_of(0, parts, 0)
    assert span.damage(memoryview(data)) == ""
    data[5] ^= 0xFF  # between the parts
    assert span.damage(memoryview(data)) == ""
    assert bytes(span.content_of(parts[1], memoryview(data))) == b"second"
    data[12] ^= 0xFF
    told = span.damage(memoryview(data))
    assert told.startswith("'m' at 0: ")
    assert told.endswith(f"for {crc32c_hex(crc32c(b'second'))}")
    assert span.with_parts([parts[0], parts[2]]).damage(memoryview(data)) == ""


def test_a_chunk_is_verified_as_a_whole() -> None:
    data = bytearray(b"all of it")
    chunk = ManifestChunk(4, 1, 50, len(data), crc32c_hex(crc32c(data)))
    span = span_of_chunk(chunk)
    assert (span.file_index, span.offset, span.end) == (1, 50, 59)
    assert span.damage(memoryview(data)) == ""
    data[-1] ^= 1
    assert span.damage(memoryview(data)).startswith("chunk 4: ")


def test_spans_are_told_apart_by_what_they_are_and_not_by_what_they_hold() -> None:
    one, other = (next(spans_of(0, [part(0, 1)], 0)) for _ in range(2))
    assert one != other
    assert len({one, other}) == 2
