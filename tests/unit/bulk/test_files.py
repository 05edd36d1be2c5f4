"""Many files at once: whether done in C or in Python, the same comes of it."""

from __future__ import annotations

import errno
import os
import resource
import stat
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from mx_artifacts.bulk.create import Making, NewFiles, create_files
from mx_artifacts.bulk.overwrite import overwrite, overwrite_files
from mx_artifacts.bulk.read import ShortFileError, read_files
from mx_artifacts.bulk.status import LINKED, Stamp, StampColumns, all_are_files, stamp_columns
from mx_artifacts.core.digest import crc32c
from mx_artifacts.filesystem.access import current_umask
from tests.support.compiled import WAYS, done

SURROGATE = os.fsdecode(b"not UTF-8 \xff")
OUTSIDE = [(-1, 1), (0, -1), (0, 9), (9, 0), (8, 1), (2**63 - 1, 1), (1, 2**63 - 1), (-1, 0)]
"""Parts that do not lie in a buffer of 8 bytes."""


@pytest.fixture(name="way", params=WAYS, autouse=True)
def _way(request: pytest.FixtureRequest) -> Iterator[str]:
    with done(request.param):
        yield request.param


@pytest.fixture(name="directory")
def _directory(tmp_path: Path) -> Iterator[int]:
    """Return a descriptor of `tmp_path`; see that nothing opened in the test stays open."""
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)
    assert open_below(tmp_path) == []


def open_below(directory: Path) -> list[str]:
    """Return what this process has open there."""
    places = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile, as the listing itself is
            places.append(os.readlink(link))
    return [place for place in places if place.startswith(str(directory))]


@contextmanager
def refused(number: int, path: str) -> Iterator[None]:
    """Expect an error with this errno that names `path`."""
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        yield
    assert (caught.value.errno, caught.value.filename) == (number, path)
    assert type(caught.value) is type(OSError(number, ""))


# --- status ---------------------------------------------------------------------------------------


def rows(found: StampColumns) -> list[Stamp]:
    return list(map(Stamp._make, zip(*found, strict=True)))


def test_the_status_of_all_that_there_can_be(tmp_path: Path) -> None:
    (tmp_path / "directory" / "below").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"x" * 1000)
    (tmp_path / SURROGATE).touch()
    os.utime(tmp_path / SURROGATE, ns=(0, -1_500_000_000))
    (tmp_path / "late").touch()
    os.utime(tmp_path / "late", (0, 10_400_000_000))  # in the year 2299: no int64 of nanoseconds
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "to_nothing").symlink_to("nothing")
    os.mkfifo(tmp_path / "fifo")
    names = ["directory", "directory/below", "file", SURROGATE, "link", "to_nothing", "fifo", "."]
    there = [Stamp.of(os.lstat(tmp_path / name)) for name in names]
    assert rows(stamp_columns(str(tmp_path), names)) == there
    absent = ["nothing", "file/below", "to_nothing/x", "", "n" * 256, "d/" * 2100]
    mixed = [name for pair in zip(names, [*absent, "", ""], strict=True) for name in pair]
    found = stamp_columns(str(tmp_path), mixed)
    assert rows(found)[::2] == there
    assert set(rows(found)[1::2]) == {Stamp(0, 0, 0, 0, 0, 0)}
    late = Stamp.of(os.lstat(tmp_path / "late"))
    assert rows(stamp_columns(str(tmp_path), ["file", "late"])) == [there[2], late]


def test_no_names_have_no_status(tmp_path: Path) -> None:
    assert list(map(list, stamp_columns(str(tmp_path), []))) == [[]] * 6


def test_a_directory_that_cannot_be_looked_into(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError):
        stamp_columns(str(tmp_path / "none"), ["file"])
    with pytest.raises(NotADirectoryError):
        stamp_columns(str(tmp_path / "file"), ["file"])
    with pytest.raises(ValueError, match="null"):
        stamp_columns(str(tmp_path), ["file", "a\0b"])
    assert open_below(tmp_path) == []


# --- creation -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class New:
    path: str
    content: bytes = b"content"
    mode: int = 0o644
    mtime_ns: int = 0


def files_of(files: Sequence[New]) -> tuple[NewFiles, bytearray]:
    """Return columns, and contents one behind the other, the last one first."""
    data = b"".join(file.content for file in reversed(files))
    lengths = [len(file.content) for file in files]
    columns = (
        [sum(lengths[index + 1 :]) for index in range(len(files))],
        lengths,
        [file.mode for file in files],
        [file.mtime_ns for file in files],
    )
    paths = [file.path for file in files]
    return NewFiles(paths, *(array("q", column) for column in columns)), bytearray(data)


def create(
    directory: int,
    *files: New,
    owner: tuple[int, int] | None = None,
    lend: Callable[[bytearray], memoryview] = memoryview,
) -> tuple[list[int], list[int]]:
    columns, data = files_of(files)
    mtimes, ctimes = create_files(directory, columns, lend(data), Making(owner, current_umask()))
    return list(mtimes), list(ctimes)


def parts(offset: int, length: int, *paths: str) -> NewFiles:
    """Return columns that are alike for all paths."""
    columns = ((offset, length, 0o644, 0) for _ in paths)
    return NewFiles(paths, *(array("q", column) for column in zip(*columns, strict=True)))


VARIOUS = (
    New("a"),
    New("empty", b""),
    New("below/large", os.urandom(300_000)),
    New("below/program", mode=0o755),
    New("private", mode=0o600),
    New("read_only", mode=0o444),
    New("shared", mode=0o664),
    New(SURROGATE, b"\0"),
    New("dated", mtime_ns=1_700_000_000_123_456_789),
    New("early", mtime_ns=-1),
    New("earlier", mtime_ns=-1_500_000_000),
    New("whole_second_before", mtime_ns=-2_000_000_000),
)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
@pytest.mark.parametrize("lend", [memoryview, lambda data: memoryview(bytes(data))])
def test_files_are_made_as_asked_for(
    tmp_path: Path, directory: int, umask: int, lend: Callable[[bytearray], memoryview]
) -> None:
    (tmp_path / "below").mkdir()
    before = os.umask(umask)
    try:
        mtimes, ctimes = create(directory, *VARIOUS, lend=lend)
    finally:
        os.umask(before)
    for file, mtime_ns, ctime_ns in zip(VARIOUS, mtimes, ctimes, strict=True):
        found = os.lstat(tmp_path / file.path)
        assert stat.S_IMODE(found.st_mode) == file.mode
        assert (tmp_path / file.path).read_bytes() == file.content
        assert (found.st_mtime_ns, found.st_ctime_ns) == (mtime_ns, ctime_ns)
        if file.mtime_ns:
            assert mtime_ns == file.mtime_ns
    assert len(list(tmp_path.rglob("*"))) == len(VARIOUS) + 1


def test_no_files_are_made_of_nothing(tmp_path: Path, directory: int) -> None:
    assert create(directory) == ([], [])
    assert create(directory, New("empty", b"")) != ([], [])
    assert (tmp_path / "empty").read_bytes() == b""


def test_files_are_given_away_and_keep_their_modes(tmp_path: Path, directory: int) -> None:
    owner = (12_345, 23_456) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    create(directory, New("a", mode=0o755), New("group", mode=0o664), owner=owner)
    for name, mode in (("a", 0o755), ("group", 0o664)):
        found = os.lstat(tmp_path / name)
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (*owner, mode)


def test_minus_one_leaves_an_owner_as_it_is(tmp_path: Path, directory: int) -> None:
    create(directory, New("a"), owner=(-1, os.getegid()))
    assert os.lstat(tmp_path / "a").st_uid == os.geteuid()


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("there", errno.EEXIST),
        ("to_nothing", errno.EEXIST),
        ("directory", errno.EEXIST),
        ("none/a", errno.ENOENT),
        ("", errno.ENOENT),
        ("there/a", errno.ENOTDIR),
        ("n" * 256, errno.ENAMETOOLONG),
    ],
)
def test_a_file_that_cannot_be_made_is_named(
    tmp_path: Path, directory: int, path: str, number: int
) -> None:
    (tmp_path / "there").write_bytes(b"old")
    (tmp_path / "directory").mkdir()
    (tmp_path / "to_nothing").symlink_to("nothing")
    with refused(number, path):
        create(directory, New("first"), New(path), New("last"))
    assert (tmp_path / "first").read_bytes() == b"content"
    assert (tmp_path / "there").read_bytes() == b"old"
    assert not (tmp_path / "last").exists()
    assert not (tmp_path / "nothing").exists()


def test_a_descriptor_that_is_none(directory: int) -> None:
    with refused(errno.EBADF, "a"):
        create(10_000, New("a"))
    with refused(errno.EBADF, "a"):
        read_files(10_000, ["a"], memoryview(bytearray(1)), array("q", [0]), array("q", [1]))


def test_a_device_without_room(tmp_path: Path, directory: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))  # Python ignores SIGXFSZ
    try:
        with refused(errno.EFBIG, "b"):
            create(directory, New("a"), New("b", bytes(100_001)), New("c"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "b").stat().st_size == 100_000
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(("offset", "length"), OUTSIDE)
def test_no_byte_outside_the_buffer_is_written(
    tmp_path: Path, directory: int, offset: int, length: int
) -> None:
    with pytest.raises(ValueError, match="'a' does not lie in the buffer"):
        create_files(
            directory, parts(offset, length, "a"), memoryview(bytearray(8)), Making(None, 0)
        )
    assert list(tmp_path.iterdir()) == []


def test_invalid_lists_of_files_are_refused(tmp_path: Path, directory: int) -> None:
    data, making = memoryview(bytearray(8)), Making(None, 0)
    with pytest.raises(ValueError, match="null"):
        create_files(directory, parts(0, 1, "a\0b"), data, making)
    assert list(tmp_path.iterdir()) == []
    whole = parts(0, 1, "a", "b")
    with pytest.raises(ValueError, match=r"column|zip"):
        create_files(directory, NewFiles(("a",), *list(vars(whole).values())[1:]), data, making)


def test_threads_make_and_read_at_once(tmp_path: Path, directory: int) -> None:
    def work(number: int) -> bool:
        files = [New(f"{number}-{index}", os.urandom(index * 50)) for index in range(40)]
        create(directory, *files)
        columns, data = files_of(files)
        space = bytearray(len(data))
        where = (columns.offsets, columns.lengths)
        sums = read_files(directory, columns.paths, memoryview(space), *where)
        return space == data and list(sums) == [crc32c(file.content) for file in files]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(16))) == [True] * 16


# --- reading --------------------------------------------------------------------------------------


def read(directory: int, space: bytearray, *parts: tuple[str, int, int]) -> list[int]:
    paths, offsets, lengths = zip(*parts, strict=True)
    columns = array("q", offsets), array("q", lengths)
    return list(read_files(directory, paths, memoryview(space), *columns))


def test_the_first_bytes_of_files_come_where_they_shall(tmp_path: Path, directory: int) -> None:
    content = os.urandom(40_000)  # checksums are made of three streams of 4 KiB, and the rest
    (tmp_path / SURROGATE).write_bytes(content)
    (tmp_path / "empty").touch()
    for length in (0, 1, 7, 8, 9, 15, 16, 100, 12_287, 12_288, 12_289, 36_999, 40_000):
        for offset in range(9):
            space = bytearray(b"." * 40_020)
            wanted = [("empty", 0, 0), (SURROGATE, offset, length), ("empty", 40_020, 0)]
            assert read(directory, space, *wanted) == [0, crc32c(content[:length]), 0]
            expected = content[:length].rjust(offset + length, b".").ljust(40_020, b".")
            assert space == expected
    assert read(directory, bytearray(), ("empty", 0, 0)) == [0]
    assert list(read_files(directory, [], memoryview(b""), array("q"), array("q"))) == []


def test_a_file_that_is_too_short_is_named(tmp_path: Path, directory: int) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    os.mkfifo(tmp_path / "fifo")
    for path in ("a", "fifo"):  # nobody writes to it, so it is at its end
        with pytest.raises(ShortFileError) as caught:
            read(directory, bytearray(20), ("a", 0, 5), (path, 10, 6))
        assert caught.value.path == path


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("none", errno.ENOENT),
        ("", errno.ENOENT),
        ("a/b", errno.ENOTDIR),
        ("link", errno.ELOOP),
        ("directory", errno.EISDIR),
        ("fifo", errno.EAGAIN),
        ("..", errno.EXDEV),
        ("../x", errno.EXDEV),
        ("d/e/link/a", errno.ELOOP),
        ("to_d/a", errno.ELOOP),
        ("d/to_e/f/a", errno.ELOOP),
        ("n" * 256, errno.ENAMETOOLONG),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, directory: int, path: str, number: int
) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "directory").mkdir()
    (tmp_path / "d/e/f").mkdir(parents=True)
    for file in ("d/a", "d/e/a", "d/e/f/a"):
        (tmp_path / file).write_bytes(b"1")
    for link, target in (("to_d", "d"), ("d/to_e", "e"), ("d/e/link", "f")):
        (tmp_path / link).symlink_to(target)
    os.mkfifo(tmp_path / "fifo")
    both_ends = os.open(tmp_path / "fifo", os.O_RDWR)  # so there is somebody who might write
    try:
        with refused(number, path):
            read(directory, bytearray(8), ("a", 0, 1), ("d/e/f/a", 1, 1), (path, 2, 1))
    finally:
        os.close(both_ends)


def test_the_mode_shows_that_a_file_has_other_names(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    (tmp_path / "c").hardlink_to(tmp_path / "b")
    (tmp_path / "d/e").mkdir(parents=True)  # a directory has more links than one
    modes = stamp_columns(str(tmp_path), ["a", "b", "c", "d"]).modes
    assert [mode >= LINKED for mode in modes] == [False, True, True, False]
    assert [stat.S_IFMT(mode) for mode in modes] == [stat.S_IFREG] * 3 + [stat.S_IFDIR]


# --- links on the way -----------------------------------------------------------------------------


@pytest.fixture(name="led_away")
def _led_away(tmp_path: Path) -> list[str]:
    """Return paths below `tmp_path` that links, or "..", lead to a file outside of `tmp_path`/d."""
    (tmp_path / "outside/inner").mkdir(parents=True)
    (tmp_path / "outside/inner/file").write_bytes(b"secret")
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/link").symlink_to("../outside/inner")
    (tmp_path / "d/e/link").symlink_to(tmp_path / "outside")
    (tmp_path / "d/e/magic").symlink_to(f"/proc/self/cwd/{tmp_path}/outside/inner")
    return ["link/file", "e/link/inner/file", "e/magic/file", "../outside/inner/file"]


def test_no_link_leads_away_from_what_is_looked_at(tmp_path: Path, led_away: list[str]) -> None:
    there = str(tmp_path / "d")
    assert set(rows(stamp_columns(there, led_away))) == {Stamp(0, 0, 0, 0, 0, 0)}
    found = os.lstat(tmp_path / "outside/inner/file")
    for path in led_away:
        assert not all_are_files(there, [path], [found.st_size], [found.st_mtime_ns])


def test_no_link_leads_away_what_is_written(tmp_path: Path, led_away: list[str]) -> None:
    descriptor = os.open(tmp_path / "d", os.O_PATH | os.O_DIRECTORY)
    try:
        for path in led_away:
            with pytest.raises(OSError, match=r"symbolic|cross-device") as caught:
                create(descriptor, New(path.replace("file", "new")))
            assert caught.value.errno in (errno.ELOOP, errno.EXDEV)
            with pytest.raises(OSError, match=r"symbolic|cross-device") as caught:
                overwrite_files(str(tmp_path / "d"), {path: b"theirs"})
            assert caught.value.errno in (errno.ELOOP, errno.EXDEV)
    finally:
        os.close(descriptor)
    assert (tmp_path / "outside/inner/file").read_bytes() == b"secret"
    assert os.listdir(tmp_path / "outside/inner") == ["file"]


def test_only_regular_files_are_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(OSError, match="fifo") as caught:
            overwrite_files(str(tmp_path), {"fifo": b"x"})
        assert caught.value.errno == errno.ENXIO
        with pytest.raises(OSError, match="fifo") as caught:
            overwrite(tmp_path / "fifo", b"x")
        assert caught.value.errno == errno.ENXIO
    finally:
        os.close(reader)


@pytest.mark.parametrize(("offset", "length"), OUTSIDE)
def test_no_byte_outside_the_buffer_is_written_by_a_read(
    tmp_path: Path, directory: int, offset: int, length: int
) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    with pytest.raises(ValueError, match="'a' does not lie in the buffer"):
        read(directory, bytearray(8), ("a", offset, length))


def test_buffers_that_cannot_be_written_are_refused(tmp_path: Path, directory: int) -> None:
    (tmp_path / "a").write_bytes(b"1")
    column = array("q", [0]), array("q", [1])
    with pytest.raises(ValueError, match="null"):
        read(directory, bytearray(1), ("a\0", 0, 1))
    with pytest.raises((TypeError, BufferError), match="not writable"):
        read_files(directory, ["a"], memoryview(b"."), *column)
    with pytest.raises(ValueError, match=r"column|zip"):
        read_files(directory, ["a", "a"], memoryview(bytearray(1)), *column)


# --- plain files of a size and time ---------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 600])
def test_files_as_they_should_be(tmp_path: Path, count: int) -> None:
    paths = [str(number) for number in range(count)]
    for path in paths:
        (tmp_path / path).write_bytes(b"1234")
        os.utime(tmp_path / path, ns=(0, 1_000_000_007))
    assert all_are_files(str(tmp_path), paths, [4] * count, [1_000_000_007] * count)
    if count:
        assert not all_are_files(
            str(tmp_path), paths, [4] * (count - 1) + [5], [1_000_000_007] * count
        )
        assert not all_are_files(
            str(tmp_path), paths, [4] * count, [1_000_000_007] * (count - 1) + [8]
        )
        assert not all_are_files(str(tmp_path), paths, [4] * count, [1 << 70] * count)


@pytest.mark.parametrize("kind", ["none", "directory", "link", "fifo"])
def test_reading_something_other_than_a_regular_file(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "fifo")
    found = os.lstat(tmp_path / ("file" if kind == "none" else kind))
    size, mtime_ns = found.st_size, found.st_mtime_ns
    assert all_are_files(str(tmp_path), ["file"], [0], [(tmp_path / "file").stat().st_mtime_ns])
    assert not all_are_files(str(tmp_path), [kind], [size], [mtime_ns])
    with pytest.raises(FileNotFoundError):
        all_are_files(str(tmp_path / "none"), ["file"], [0], [0])
