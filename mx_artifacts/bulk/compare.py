"""Compares many parts of a buffer with their checksums."""

from __future__ import annotations

from array import array

from mx_artifacts.bulk.library import bytes_of, column_of, library, part_of
from mx_artifacts.core.digest import crc32c


def first_damaged(
    data: memoryview, offsets: array[int], lengths: array[int], checksums: array[int]
) -> int | None:
    """Return the number of the first part whose CRC32C is wrong, if any.

    A part that is outside `data` counts as damaged.
    """
    count = len(offsets)
    compiled = library()
    if compiled is None or data.readonly:
        parts = zip(offsets, lengths, checksums, strict=True)
        return next((n for n, part in enumerate(parts) if not _is_good(data, *part)), None)
    good = compiled.bulk_compare(
        count,
        bytes_of(data),
        data.nbytes,
        column_of(offsets, count),
        column_of(lengths, count),
        column_of(checksums, count),
    )
    return None if good == count else int(good)


def _is_good(data: memoryview, offset: int, length: int, checksum: int) -> bool:
    try:
        return crc32c(part_of(data, offset, length, "")) == checksum
    except ValueError:
        return False
