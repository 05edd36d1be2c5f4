"""A cache that is written to while it is packed: no bundle ever holds half of an entry."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.bulk.listing import Listing, list_directories
from mx_artifacts.bulk.read import read_files
from mx_artifacts.bundle import pack as packing
from mx_artifacts.bundle import read_entry, tree
from mx_artifacts.bundle.pack import MIN_AGE_SECONDS, pack_tree
from mx_artifacts.bundle.packed import PackReport
from mx_artifacts.bundle.rules import PackRules, first_parts
from mx_artifacts.errors import SourceChangedError
from mx_artifacts.memory.buffers import FileBuffer
from mx_artifacts.runtime import threads
from mx_artifacts.runtime.clock import FakeClock, SystemClock
from tests.support.packing import pack_to_file, unpack_file
from tests.support.trees import read_tree, write_tree

BY_DIRECTORY = PackRules(entry_of=first_parts(1))
TICK_SECONDS = 0.05
"""Safely above the tick of the file system's clock."""


@pytest.fixture(autouse=True)
def a_short_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is promised here holds from this age on; the real one would only cost time."""
    monkeypatch.setattr(packing, "MIN_AGE_SECONDS", TICK_SECONDS)


@pytest.fixture(autouse=True)
def one_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what happens at the first read happens before all others."""
    monkeypatch.setattr(threads, "thread_count", lambda: 1)


class SkippingClock(SystemClock):
    """The real time, but for sleeps, which are skipped."""

    def __init__(self) -> None:
        self.skipped_seconds = 0.0

    def now(self) -> float:
        return super().now() + self.skipped_seconds

    def sleep(self, seconds: float) -> None:
        self.skipped_seconds += seconds


class OnRead:
    """Calls `mutate` before each of the first `times` times that a packer reads files."""

    def __init__(self, mutate: Callable[[], object], times: int = 1_000_000) -> None:
        self._mutate = mutate
        self._times = times
        self._read_files = read_files

    def __call__(self, *arguments: Any) -> Sequence[int]:
        if self._times:
            self._times -= 1
            self._mutate()
        return self._read_files(*arguments)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"line\n")


def unpacked(bundle: Path) -> dict[str, bytes | None]:
    out = bundle.with_suffix(".out")
    unpack_file(bundle, out)
    return read_tree(out)


def pack(tmp_path: Path, rules: PackRules = BY_DIRECTORY) -> PackReport:
    return pack_to_file(tmp_path / "root", tmp_path / "b.tar", rules)


def reasons(report: PackReport) -> dict[str, str]:
    return {skip.path: skip.reason for skip in report.skipped}


def test_a_file_that_changes_once_is_packed_at_the_second_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_tree(tmp_path / "root", {"k": {"a": b"old a", "b": b"old b"}, "z": {"x": b"z"}})

    def recompile() -> None:
        write_tree(root, {"k": {"a": b"new a", "b": b"new b", "c": b"new c"}})

    pack(tmp_path)  # so that nothing is fresh any more
    monkeypatch.setattr(read_entry, "read_files", OnRead(recompile, times=1))
    report = pack(tmp_path)
    assert report.skipped == ()
    assert report.file_count == 4
    assert unpacked(tmp_path / "b.tar") == read_tree(root)


@pytest.mark.parametrize("grows", [False, True])
def test_a_large_entry_that_changes_takes_no_plain_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grows: bool
) -> None:
    """Where it has its size again it is read to where it lay; else to memory of the same sort."""
    monkeypatch.setattr("mx_artifacts.bundle.placement._PLAIN_BYTES", 1 << 16)
    monkeypatch.setattr("mx_artifacts.bundle.read_entry._READ_BYTES", 1 << 16)
    old, new = (random.Random(n).randbytes(1 << 20) for n in range(2))
    root = write_tree(tmp_path / "root", {"a": {"x": b"a"}, "k": {"x": old}, "z": {"x": b"z"}})
    allocated: list[FileBuffer] = []

    def allocate(length: int) -> FileBuffer:
        allocated.append(FileBuffer(tmp_path, length))
        return allocated[-1]

    read_large, changes = read_entry._read_large, iter([{"k": {"x": new + bytes(grows)}}])

    def read_and_recompile(*arguments: Any) -> int:
        checksum = read_large(*arguments)
        write_tree(root, next(changes, {}))
        return checksum

    pack(tmp_path)  # so that nothing is fresh any more
    monkeypatch.setattr(read_entry, "_read_large", read_and_recompile)
    packed = pack_tree(root, BY_DIRECTORY, allocate)
    assert packed.report.skipped == ()
    (tmp_path / "b.tar").write_bytes(packed.memory.view)
    packed.memory.close()
    assert unpacked(tmp_path / "b.tar") == read_tree(root)
    assert len(allocated) == (3 if grows else 1), "the bundle, the entry, the bundle that grew"
    assert all(each._file.closed for each in allocated)


@pytest.mark.parametrize(
    ("name", "mutate"),
    [
        ("appended to", lambda path: append(path)),
        ("cut", lambda path: os.truncate(path, max(0, path.stat().st_size - 1))),
        ("rewritten in place", lambda path: path.write_bytes(os.urandom(500))),
        ("replaced", lambda path: (path.with_name("tmp.1").write_bytes(b"n" * 500),
                                   path.with_name("tmp.1").rename(path))),
        ("touched", lambda path: os.utime(path)),
    ],
)  # fmt: skip
def test_a_file_that_keeps_changing_is_left_out_with_its_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mutate: Callable[[Path], object]
) -> None:
    tree = {
        "busy": {"a": b"a", "log": bytes(500)},
        "calm": {"x": b"x"},
        "later": {"y": b"y"},
    }
    root = write_tree(tmp_path / "root", tree)
    monkeypatch.setattr(read_entry, "read_files", OnRead(lambda: mutate(root / "busy" / "log")))
    report = pack(tmp_path, PackRules(exclude=("tmp.*",), entry_of=first_parts(1)))
    assert set(reasons(report)) == {"busy"}
    assert "busy/" in reasons(report)["busy"]
    assert report.file_count == 2
    assert report.content_bytes == 2
    assert unpacked(tmp_path / "b.tar") == {
        "calm": None,
        "calm/x": b"x",
        "later": None,
        "later/y": b"y",
    }


def test_a_growing_log_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_tree(tmp_path / "root", {"a": b"a", "jit.log": b"line\n", "z": b"z"})

    monkeypatch.setattr(read_entry, "read_files", OnRead(lambda: append(root / "jit.log")))
    report = pack(tmp_path, PackRules())
    assert set(reasons(report)) == {"jit.log"}
    assert unpacked(tmp_path / "b.tar") == {"a": b"a", "z": b"z"}


def test_vanished_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_tree(
        tmp_path / "root",
        {"a": {"x": b"1"}, "gone": {"x": b"2"}, "half": {"x": b"3", "y": b"4"}, "z": b"5"},
    )

    def evict() -> None:
        (root / "half" / "y").unlink()
        (root / "gone" / "x").unlink()
        (root / "gone").rmdir()

    pack(tmp_path)
    monkeypatch.setattr(read_entry, "read_files", OnRead(evict, times=1))
    report = pack(tmp_path)
    assert reasons(report) == {"gone": "vanished while packed"}
    assert unpacked(tmp_path / "b.tar") == {
        "a": None,
        "a/x": b"1",
        "half": None,
        "half/x": b"3",
        "z": b"5",
    }


def test_a_file_that_becomes_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_tree(tmp_path / "root", {"a": b"1", "b": b"2", "c": b"3", "d": b"4"})

    def swap() -> None:
        for name in "bcd":
            (root / name).unlink()
        (root / "b").symlink_to("/etc/passwd")
        os.mkfifo(root / "c")
        (root / "d").mkdir()

    pack(tmp_path, PackRules())
    monkeypatch.setattr(read_entry, "read_files", OnRead(swap, times=1))
    report = pack(tmp_path, PackRules())
    assert reasons(report) == {
        "b": "link out of the cache root",
        "c": "neither a file nor a directory",
    }
    assert unpacked(tmp_path / "b.tar") == {"a": b"1", "d": None}


def test_a_cache_that_never_settles_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_tree(tmp_path / "root", {"a": b"1"})
    monkeypatch.setattr(read_entry, "read_files", OnRead(lambda: (root / "a").write_bytes(b"2")))
    with pytest.raises(SourceChangedError, match="nothing to publish") as caught:
        pack(tmp_path)
    assert caught.value.retryable
    assert os.listdir(tmp_path) == ["root"]


def test_waiting_for_many_busy_entries_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_tree(tmp_path / "root", {f"k{i}": {"x": b"1"} for i in range(30)} | {"z": b""})
    clock = SkippingClock()

    def touch_all() -> None:
        for i in range(30):
            os.utime(root / f"k{i}" / "x")

    monkeypatch.setattr(read_entry, "read_files", OnRead(touch_all))
    report = pack_to_file(root, tmp_path / "b.tar", BY_DIRECTORY, clock=clock)
    assert len(report.skipped) + report.file_count == 31
    assert len(report.skipped) > 20
    assert 0 < clock.skipped_seconds <= 2.0


@pytest.mark.parametrize(
    ("age_seconds", "slept_seconds"), [(0.01, 0.49), (0.499, 0.001), (0.51, 0.0), (-3600.0, 0.0)]
)
def test_a_file_must_have_been_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_seconds: float, slept_seconds: float
) -> None:
    """A stamp an hour ahead is a file server's clock."""
    monkeypatch.setattr(packing, "MIN_AGE_SECONDS", MIN_AGE_SECONDS)
    root = write_tree(tmp_path / "root", {"a": b"1"})
    start = (root / "a").stat().st_ctime_ns / 1e9 + age_seconds
    clock = FakeClock(start)
    assert pack_to_file(root, tmp_path / "b.tar", PackRules(), clock=clock).file_count == 1
    assert clock.now() - start == pytest.approx(slept_seconds, abs=1e-5)


class Remover(FakeClock):
    """A clock on which the directory is gone after the first wait."""

    def __init__(self, now: float, directory: Path) -> None:
        super().__init__(now)
        self._directory = directory

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        shutil.rmtree(self._directory, ignore_errors=True)


def test_an_entry_that_is_being_removed_is_waited_for(tmp_path: Path) -> None:
    """What is left of it has not changed for long, and could be a whole entry."""
    root = write_tree(tmp_path / "root", {"k": {"a": b"1", "b": b"2"}, "z": b""})
    time.sleep(2 * TICK_SECONDS)
    (root / "k" / "a").unlink()
    clock = Remover((root / "k").stat().st_ctime + TICK_SECONDS / 2, root / "k")
    report = pack_to_file(root, tmp_path / "b.tar", BY_DIRECTORY, clock=clock)
    assert reasons(report) == {"k": "vanished while packed"}


def test_one_wait_is_enough_for_files_of_any_ages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_tree(tmp_path / "root", {"k": {}})
    for name in "abcdefgh":
        (root / "k" / name).write_bytes(b"1")
        time.sleep(0.02)
    monkeypatch.setattr(packing, "MIN_AGE_SECONDS", MIN_AGE_SECONDS)
    clock = FakeClock((root / "k" / "h").stat().st_ctime + 0.01)
    assert pack_to_file(root, tmp_path / "b.tar", BY_DIRECTORY, clock=clock).skipped == ()


class DescheduledWriter(FakeClock):
    """A clock on which a writer that has emptied a file gets to write it after 0.4 s."""

    def __init__(self, file: Path) -> None:
        super().__init__(file.stat().st_ctime)
        self._file = file

    def sleep(self, seconds: float) -> None:
        before = self.now()
        super().sleep(seconds)
        if (
            before < self._file.stat().st_ctime + 0.4 <= self.now()
            and not self._file.stat().st_size
        ):
            self._file.write_bytes(stamped(1)["kernel.json"])


def test_a_writer_that_is_descheduled_between_two_writes_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MIN_AGE_SECONDS", MIN_AGE_SECONDS)
    root = write_tree(tmp_path / "root", {"k": {**stamped(1), "kernel.json": b""}})
    clock = DescheduledWriter(root / "k" / "kernel.json")
    report = pack_to_file(root, tmp_path / "b.tar", BY_DIRECTORY, clock=clock)
    assert report.skipped == ()
    assert check_stamps(tmp_path / "b.tar") == 1


def stamped(stamp: int) -> dict[str, bytes]:
    return {"kernel.cubin": b"%08d" % stamp * 200, "kernel.json": b"%08d" % stamp * 30}


def check_stamps(bundle: Path) -> int:
    """Check that each entry is whole and of one stamp; return how many there are."""
    found = unpacked(bundle)
    entries = [path for path, content in found.items() if content is None]
    for entry in entries:
        cubin, metadata = found[f"{entry}/kernel.cubin"], found[f"{entry}/kernel.json"]
        assert cubin is not None
        assert metadata is not None
        assert cubin == cubin[:8] * 200
        assert metadata == cubin[:8] * 30
    return len(entries)


@pytest.mark.parametrize("seed", range(5))
def test_pairs_rewritten_at_every_step_are_consistent_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Rewriting the pair in one step between two reads, at the file system's own time stamps."""
    order = random.Random(seed)
    root = write_tree(tmp_path / "root", {f"k{i}": stamped(0) for i in range(8)})
    stamp = 0

    def rewrite_some() -> None:
        nonlocal stamp
        for _ in range(order.randrange(4)):
            stamp += 1
            write_tree(root / f"k{order.randrange(6)}", stamped(stamp))

    monkeypatch.setattr(read_entry, "read_files", OnRead(rewrite_some, times=40))
    bundle = tmp_path / "b.tar"
    report = pack_to_file(root, bundle, BY_DIRECTORY)
    assert check_stamps(bundle) + len(report.skipped) == 8


@contextmanager
def another_thread(step: Callable[[int], object]) -> Iterator[None]:
    """Call `step(1)`, `step(2)`, … in another thread until the block ends."""
    stop = threading.Event()

    def compile_for_ever() -> None:
        stamp = 0
        while not stop.wait(0.002):
            stamp += 1
            step(stamp)

    compiler = threading.Thread(target=compile_for_ever)
    compiler.start()
    try:
        yield
    finally:
        stop.set()
        compiler.join()


def test_pairs_that_another_thread_moves_in_are_whole(tmp_path: Path) -> None:
    """As compilers do it. However long the thread is kept waiting, there is never half a pair."""
    root = write_tree(tmp_path / "root", {f"k{i}": stamped(0) for i in range(6)})

    def move_in(stamp: int) -> None:
        write_tree(root / f"tmp.{stamp}", stamped(stamp))
        (root / f"k{stamp % 4}").rename(root / f"tmp.old{stamp}")
        (root / f"tmp.{stamp}").rename(root / f"k{stamp % 4}")

    rules = PackRules(exclude=("tmp.*",), entry_of=first_parts(1))
    with another_thread(move_in):
        for attempt in range(4):
            bundle = tmp_path / f"{attempt}.tar"
            pack_to_file(root, bundle, rules)
            assert 2 <= check_stamps(bundle) <= 6  # nobody writes to the last two


def test_pairs_that_another_thread_rewrites_in_place_are_as_they_were_at_one_moment(
    tmp_path: Path,
) -> None:
    """It may have been stopped half-way through for any time, so that moment may be then."""
    root = write_tree(tmp_path / "root", {f"k{i}": stamped(0) for i in range(6)})

    def moments(last: int) -> Iterator[tuple[bytes, bytes]]:
        for stamp in range(last + 1):
            before, after = stamped(max(0, stamp - 4)), stamped(stamp)
            yield b"", before["kernel.json"]
            yield after["kernel.cubin"], before["kernel.json"]
            yield after["kernel.cubin"], b""
            yield after["kernel.cubin"], after["kernel.json"]

    written = 0

    def rewrite(stamp: int) -> None:
        nonlocal written
        written = stamp
        write_tree(root / f"k{stamp % 4}", stamped(stamp))

    with another_thread(rewrite):
        for attempt in range(4):
            bundle = tmp_path / f"{attempt}.tar"
            report = pack_to_file(root, bundle, BY_DIRECTORY)
            found = unpacked(bundle)
            entries = [path for path, content in found.items() if content is None]
            assert len(entries) + len(report.skipped) == 6
            assert {"k4", "k5"} <= set(entries)
            pairs = {(found[f"{e}/kernel.cubin"], found[f"{e}/kernel.json"]) for e in entries}
            assert pairs <= set(moments(written))


def test_a_directory_that_another_takes_the_place_of_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was moved away between being listed and being looked into, as a compiler does."""
    root = write_tree(tmp_path / "root", {"k0": stamped(0), "k1": stamped(0)})
    times = 0

    def after_a_move(place: int, paths: Sequence[str]) -> list[Listing]:
        nonlocal times
        times += 1
        if times == 2:
            (root / "k0").rename(root / "tmp.old")
        found = list_directories(place, paths)
        if times == 2:
            write_tree(root / "tmp.new", stamped(1))
            (root / "tmp.new").rename(root / "k0")
        return found

    monkeypatch.setattr(tree, "list_directories", after_a_move)
    rules = PackRules(exclude=("tmp.*",), entry_of=first_parts(1))
    report = pack_to_file(root, tmp_path / "b.tar", rules)
    assert report.skipped == ()
    assert check_stamps(tmp_path / "b.tar") == 2


def test_an_empty_directory_may_be_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_tree(tmp_path / "root", {"k0": stamped(0), "locks": {}})
    monkeypatch.setattr(
        read_entry, "read_files", OnRead(lambda: (root / "locks" / "x.lock").touch())
    )
    rules = PackRules(exclude=("*.lock",), entry_of=first_parts(1))
    report = pack_to_file(root, tmp_path / "b.tar", rules)
    assert [skip.path for skip in report.skipped if skip.path == "locks"] == []
    assert report.paths == ("k0", "k0/kernel.cubin", "k0/kernel.json", "locks")
