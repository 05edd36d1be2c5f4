"""Headers and checksums of many members are those that one member after the other has."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mx_artifacts.bulk.headers import MemberColumns, first_headers, join_first
from mx_artifacts.bundle.headers import (
    NAME_BYTES,
    TAR_BLOCK_BYTES,
    encode_member,
    padding_bytes,
    safe_mode,
)
from mx_artifacts.core.digest import crc32c, crc32c_join
from tests.support.compiled import WAYS, done

Member = tuple[str, bool, int, int, int]

MAX_OCTAL = 8**11 - 1
NAMES = st.one_of(
    st.text("ab/.-\x7f ", min_size=1, max_size=20),
    st.integers(NAME_BYTES - 2, NAME_BYTES + 2).map("n".__mul__),
    st.text("aä日\U0001f600\ud800", max_size=5).map("x".__add__),
    st.just(os.fsdecode(b"x\xff")),
)
SIZES = st.one_of(st.integers(0, 2000), st.integers(MAX_OCTAL - 1, MAX_OCTAL + 1))
TIMES = st.one_of(*[st.just(0)] * 8, st.integers(-(2**63), 2**63 - 1), st.just(2**63))
MEMBERS = st.lists(
    st.builds(
        lambda name, is_dir, size, mode, mtime_ns: (
            name,
            is_dir,
            0 if is_dir else size,
            safe_mode(mode, is_dir),
            mtime_ns,
        ),
        NAMES,
        st.booleans(),
        SIZES,
        st.integers(0, 0o7777),
        TIMES,
    ),
    max_size=12,
)


def columns(members: list[Member]) -> MemberColumns:
    return MemberColumns(*(zip(*members, strict=True) if members else [()] * 5))


def header(member: Member) -> bytes:
    path, is_dir, size, mode, mtime_ns = member
    return encode_member(path, is_dir=is_dir, size=size, mode=mode, mtime_ns=mtime_ns)


def is_plain(member: Member) -> bool:
    path, is_dir, size, _, mtime_ns = member
    short = path.isascii() and len(path) + is_dir <= NAME_BYTES
    return short and size <= MAX_OCTAL and mtime_ns == 0


def first_plain(members: list[Member], way: str) -> int:
    """Return how many members are done at once: none where a number fits no column."""
    if way == "python" or any(mtime_ns == 2**63 for *_, mtime_ns in members):
        return 0
    return next((i for i, each in enumerate(members) if not is_plain(each)), len(members))


@pytest.mark.parametrize("way", WAYS)
@given(members=MEMBERS)
@example(members=[("n" * 100, False, MAX_OCTAL, 0o644, 0), ("n" * 99, True, 0, 0o755, 0)])
@example(members=[("", False, 0, 0o644, 0), ("\ud800", False, 0, 0o644, 0)])
def test_headers(way: str, members: list[Member]) -> None:
    with done(way):
        blocks = first_headers(columns(members))
    count = first_plain(members, way)
    assert blocks == b"".join(map(header, members[:count]))
    assert len(blocks) == count * TAR_BLOCK_BYTES


@pytest.mark.parametrize("way", WAYS)
@given(members=MEMBERS, seed=st.binary(min_size=1, max_size=8))
def test_checksums(way: str, members: list[Member], seed: bytes) -> None:
    """Contents of gigabytes are not made: a short one gives its checksum."""
    contents = [(seed * 2000)[: min(size, 2000)] for _, _, size, _, _ in members]
    with done(way):
        count, joined = join_first(columns(members), list(map(crc32c, contents)))
    assert count == first_plain(members, way)
    expected = 0
    for member, content in zip(members[:count], contents, strict=False):
        size = member[2]
        expected = crc32c(header(member), expected)
        if len(content) == size:
            expected = crc32c(content, expected)
        else:
            expected = crc32c_join(expected, crc32c(content), size)
        expected = crc32c(bytes(padding_bytes(size)), expected)
    assert joined == expected


@pytest.mark.parametrize("way", WAYS)
def test_columns_of_different_lengths_are_refused(way: str) -> None:
    members = MemberColumns(("a", "b"), (False, False), (0,), (0o644, 0o644), (0, 0))
    with done(way):
        if way == "python":
            assert first_headers(members) == b""
            return
        with pytest.raises(ValueError, match="a column of 2 was wanted, this has 1"):
            first_headers(members)
        with pytest.raises(ValueError, match="null"):
            first_headers(columns([("a\0b", False, 0, 0o644, 0)]))
