"""ninja's own files: read and written as ninja does, paths moved and nothing else."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.kinds.ninja.build_log import LogEntry, NinjaLog, format_log, parse_log
from mx_artifacts.kinds.ninja.deps_log import (
    InputsRecord,
    PathRecord,
    Record,
    format_deps,
    parse_deps,
)
from mx_artifacts.kinds.ninja.paths import move_path, move_paths, paths_in, root_of

PATHS = st.binary(min_size=1, max_size=40).filter(lambda path: b"\0" not in path)
UINT64 = st.integers(0, 2**64 - 1)
ENTRIES = st.builds(
    LogEntry,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    PATHS.filter(lambda path: not {b"\t", b"\n"} & set(map(bytes, zip(path)))),
    UINT64,
)


@st.composite
def deps_records(draw: st.DrawFn) -> tuple[Record, ...]:
    records: list[Record] = [PathRecord(path) for path in draw(st.lists(PATHS, max_size=6))]
    numbers = st.integers(0, len(records) - 1)
    if records:
        inputs = st.builds(InputsRecord, numbers, UINT64, st.lists(numbers, max_size=5).map(tuple))
        records += draw(st.lists(inputs, max_size=4))
    return tuple(records)


# What ninja 1.13 wrote for one object made from main.c and one header.
DEPS = (
    b"# ninjadeps\n\x04\0\0\0"
    b"\x0c\0\0\0cpp_0.o\0\xff\xff\xff\xff"
    b"\x10\0\0\0/r/m/main.c\0\xfe\xff\xff\xff"
    b"\x0c\0\0\0/i/h.h\0\0\xfd\xff\xff\xff"
    b"\x14\0\0\x80\0\0\0\0" + struct.pack("=Q", 1796000749440163151) + b"\1\0\0\0\2\0\0\0"
)
RECORDS = (
    PathRecord(b"cpp_0.o"),
    PathRecord(b"/r/m/main.c"),
    PathRecord(b"/i/h.h"),
    InputsRecord(0, 1796000749440163151, (1, 2)),
)


def test_a_deps_log_of_ninja() -> None:
    assert parse_deps(DEPS) == RECORDS
    assert format_deps(RECORDS) == DEPS


@given(deps_records())
def test_deps_round_trip(records: tuple[Record, ...]) -> None:
    assert parse_deps(format_deps(records)) == records


@given(st.binary(max_size=80))
def test_any_bytes_are_deps_or_damaged(tail: bytes) -> None:
    content = DEPS + tail
    with contextlib.suppress(ValueError):
        assert format_deps(parse_deps(content)) == content


@pytest.mark.parametrize("cut", range(1, len(DEPS)))
def test_a_deps_log_that_is_cut_short_is_damaged_or_shorter(cut: int) -> None:
    ends = {len(DEPS) - n for n in (0, 24, 40, 60, 76)}  # where records end
    if cut in ends:
        assert parse_deps(DEPS[:cut]) == RECORDS[: sorted(ends).index(cut)]
    else:
        with pytest.raises(ValueError, match="ninja_deps"):
            parse_deps(DEPS[:cut])


def test_a_log_of_ninja() -> None:
    content = b"# ninja log v7\n1\t5968\t1796000743480162941\tcpp_0.o\t5b6208565f73b8c1\n"
    log = NinjaLog(7, (LogEntry(1, 5968, 1796000743480162941, b"cpp_0.o", 0x5B6208565F73B8C1),))
    assert parse_log(content) == log
    assert format_log(log) == content


@given(st.builds(NinjaLog, st.integers(0, 9999), st.lists(ENTRIES, max_size=4).map(tuple)))
def test_log_round_trip(log: NinjaLog) -> None:
    assert parse_log(format_log(log)) == log


@pytest.mark.parametrize(
    "content",
    [b"", b"# ninja log\n", b"# ninja log v7\n1\t2\t3\to\n", b"# ninja log v7\n1\t2\t3\to\tff"],
)
def test_a_damaged_log(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\.ninja_log is damaged"):
        parse_log(content)


# --- paths ---------------------------------------------------------------------------------------

MOVED = [
    (b"-I/old/a -isystem /old/b", b"-I/new/a -isystem /new/b"),
    (b"build /old/x.o: cc /old/x.c | /old/y\n", b"build /new/x.o: cc /new/x.c | /new/y\n"),
    (b"lib = /old\nmore = /old", b"lib = /new\nmore = /new"),
    (b'-DROOT="/old/x" -Wl,-rpath,/old/lib', b'-DROOT="/new/x" -Wl,-rpath,/new/lib'),
    (b"/mnt/old/a /older/a -I/x/old/a old/a", None),
]


@pytest.mark.parametrize(("text", "moved"), MOVED)
def test_whole_paths_move(text: bytes, moved: bytes | None) -> None:
    assert move_paths(text, b"/old", b"/new") == (text if moved is None else moved)
    assert move_paths(text, None, b"/new") == text


def test_a_single_path_moves() -> None:
    assert move_path(b"/old/x", b"/old", b"/new") == b"/new/x"
    assert move_path(b"/older/x", b"/old", b"/new") == b"/older/x"
    assert move_path(b"x.o", b"/old", b"/new") == b"x.o"


def test_the_root_that_a_module_was_built_in() -> None:
    assert root_of(b"0.7/ops/norm", [b"/a/b/0.7/ops/norm/x.o", b"/usr/include/x.h"]) == b"/a/b"
    assert root_of(b"norm", [b"x.o", b"/usr/include/norm.h"]) is None
    with pytest.raises(ValueError, match="several places: /a, /b"):
        root_of(b"norm", [b"/a/norm/x", b"/b/norm"])


def test_the_paths_of_a_build_file() -> None:
    text = b'nvcc = /c/nvcc\nflags = -I/i -L"/l" a/b\nbuild /r/x.o: cc /r/x.c'
    assert paths_in(text) == {b"/c/nvcc", b"/i", b"/l", b"/r/x.o", b"/r/x.c"}
