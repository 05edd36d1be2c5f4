"""Member indexes, a member a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mx_artifacts.core.member_index import MemberIndex

Row = tuple[str, bool, int, int, int, int, tuple[int, ...]]
"""path, is_dir, size, mode, mtime_ns, checksum, blocks"""


def index_of_rows(rows: Sequence[Row]) -> MemberIndex:
    """Return the index that has these members."""
    *columns, blocks = zip(*rows, strict=True)
    return MemberIndex.of(columns, {n: each for n, each in enumerate(blocks) if each})


def rows_of(index: MemberIndex) -> list[Any]:
    """Return the members of an index as rows."""
    blocks = [index.blocks.get(number, ()) for number in range(len(index))]
    return list(zip(*index.columns(), blocks, strict=True))
