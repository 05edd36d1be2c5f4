"""Chunk arithmetic: how files are cut into chunks, and the rules of a chunk table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

MIB = 1024 * 1024
DEFAULT_CHUNK_SIZE_BYTES = 64 * MIB
MAX_CHUNK_SIZE_BYTES = 4 * 1024 * MIB
"""The reference accepts chunks up to 4 GiB."""


def chunk_count(file_size_bytes: int, chunk_size_bytes: int) -> int:
    """Return how many chunks a file has; an empty file has none."""
    return -(-file_size_bytes // chunk_size_bytes)


def file_ranges(file_size_bytes: int, chunk_size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of a file's chunks: all `chunk_size_bytes` long but the last."""
    for offset in range(0, file_size_bytes, chunk_size_bytes):
        yield offset, min(chunk_size_bytes, file_size_bytes - offset)


def expected_chunks(
    file_sizes_bytes: Sequence[int], chunk_size_bytes: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (chunk_index, file_index, file_offset, length) of the only valid chunk table."""
    index = 0
    for file_index, size in enumerate(file_sizes_bytes):
        for offset, length in file_ranges(size, chunk_size_bytes):
            yield index, file_index, offset, length
            index += 1
