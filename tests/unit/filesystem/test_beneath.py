"""A directory that is held open: nothing that is done below it is led out of it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mx_artifacts.errors import UnsafePathError
from mx_artifacts.filesystem import beneath
from mx_artifacts.filesystem.access import Access
from mx_artifacts.filesystem.beneath import TEMPORARY_PREFIX, Directory
from mx_artifacts.filesystem.files import existing_in, exists, make_parents, place_directory
from mx_artifacts.filesystem.regular_file import read_regular_file
from mx_artifacts.filesystem.resolved_path import open_directory, resolve_path
from tests.support.trees import write_tree


@pytest.fixture(name="held")
def _held(tmp_path: Path) -> Iterator[Directory]:
    """Return a directory with links to what is beside it; see that nothing else stays open."""
    write_tree(tmp_path, {"outside": {"x": b"theirs", "d": {}}, "in": {"a": {"b": {"x": b"1"}}}})
    (tmp_path / "in/link").symlink_to("../outside")
    (tmp_path / "in/a/link").symlink_to(tmp_path / "outside")
    (tmp_path / "in/a/file").symlink_to("../../outside/x")
    with open_directory(tmp_path / "in") as directory:
        yield directory
    assert _open_below(tmp_path) == []


def _open_below(directory: Path) -> list[str]:
    """Return the files below `directory` that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [path for path in found if path.startswith(str(directory))]


LED_AWAY = ("link/x", "a/link/x", "../outside/x", "link/new", "a/link/d/new")


@pytest.mark.parametrize("path", LED_AWAY)
@pytest.mark.parametrize(
    "work",
    [
        lambda held, path: held.status_of(path),
        lambda held, path: held.open(path, os.O_RDONLY),
        lambda held, path: held.open(path, os.O_WRONLY | os.O_CREAT, 0o644),
        lambda held, path: held.read(path, 100),
        lambda held, path: held.remove(path),
        lambda held, path: held.names(path.rpartition("/")[0]),
        lambda held, path: held.enter(path.rpartition("/")[0]),
        lambda held, path: held.parent_of(path).__enter__(),
        lambda held, path: exists(held, path),
        lambda held, path: held.sync(path.rpartition("/")[0]),
    ],
)
def test_no_path_leads_out(
    held: Directory, tmp_path: Path, path: str, work: Callable[[Directory, str], object]
) -> None:
    with pytest.raises((OSError, UnsafePathError)) as caught:
        work(held, path)
    if isinstance(caught.value, OSError):
        assert caught.value.errno in (errno.ELOOP, errno.EXDEV, errno.ENOTDIR)
    assert sorted(os.listdir(tmp_path / "outside")) == ["d", "x"]
    assert (tmp_path / "outside/x").read_bytes() == b"theirs"


def test_paths_below_are_found_after_the_directory_was_moved(
    held: Directory, tmp_path: Path
) -> None:
    (tmp_path / "in").rename(tmp_path / "away")
    (tmp_path / "in").symlink_to("outside")
    assert held.read("a/b/x", 1) == b"1"
    held.write("new", b"2")
    assert (tmp_path / "away/new").read_bytes() == b"2"
    assert not (tmp_path / "outside/new").exists()


def test_a_link_itself_is_looked_at_and_removed(held: Directory, tmp_path: Path) -> None:
    assert stat.S_ISLNK(held.status_of("a/link").st_mode)
    held.remove("a/link")
    assert not held.has("a/link")
    assert (tmp_path / "outside/x").exists()


def test_regular_files_are_read_up_to_a_bound(held: Directory, tmp_path: Path) -> None:
    place = tmp_path / "in"
    os.mkfifo(place / "fifo")
    (place / "ten").write_bytes(b"0123456789")
    (place / "zero").symlink_to("/dev/zero")
    assert held.read("ten", 10) == b"0123456789"
    for name, match in (("ten", "longer than 9 bytes"), ("fifo", "pipe"), ("a", "directory")):
        with pytest.raises(ValueError, match=match):
            held.read(name, 9)
        with pytest.raises(OSError, match=r"longer|not a regular file"):
            read_regular_file(place / name, 9)
    with pytest.raises(OSError, match="symbolic"):
        held.read("zero", 9)
    # Its size is said to be 0.
    assert read_regular_file(Path("/proc/self/status"), 1 << 20)


def test_a_file_is_whole_or_not_there(held: Directory, tmp_path: Path) -> None:
    def fail() -> None:
        assert len([n for n in held.names() if n.startswith(TEMPORARY_PREFIX)]) == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        held.put("new", b"1", fail)
    assert held.names() == ["a", "link"]
    held.put("new", b"1")
    held.put("new", b"22")
    held.put("link", b"3")  # takes the link's place
    assert held.names() == ["a", "link", "new"]
    assert (held.read("new", 9), held.read("link", 9)) == (b"22", b"3")
    assert (tmp_path / "outside/x").read_bytes() == b"theirs"


def test_names_of_temporary_files_cannot_be_foreseen(
    held: Directory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = iter(["a", "link", "free"])
    monkeypatch.setattr(beneath, "_random_names", lambda prefix: names)
    held.put("new", b"1")
    assert (tmp_path / "in/link").is_symlink()
    assert held.names() == ["a", "link", "new"]


def test_a_private_directory_is_empty_and_this_users_alone(
    held: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)
    try:
        name, made = held.make_private("x-")
    finally:
        os.umask(before)
    with made:
        assert stat.S_IMODE((tmp_path / "in" / name).stat().st_mode) == 0o700
        assert made.names() == []
    real = os.mkdir

    def swapped(path: str, mode: int, *, dir_fd: int) -> None:
        real(path, mode, dir_fd=dir_fd)
        (tmp_path / "in" / path).rmdir()
        (tmp_path / "in/a").rename(tmp_path / "in" / path)

    (tmp_path / "in/a").chmod(0o700)
    monkeypatch.setattr(os, "mkdir", swapped)
    with pytest.raises(UnsafePathError, match="is not the directory that was just created"):
        held.make_private("y-")


def test_directories_are_made_with_an_owner_and_only_where_none_is(
    held: Directory, tmp_path: Path
) -> None:
    access = Access(os.geteuid(), os.getegid(), group_write=True)
    name, workshop = held.make_private("w-")
    with workshop:
        make_parents(held, "a/c/d/x", access, workshop)
        assert stat.S_IMODE((tmp_path / "in/a/c/d").stat().st_mode) == 0o775
        assert not (tmp_path / "in/a/c/d/x").exists()
        with pytest.raises(UnsafePathError):
            make_parents(held, "a/link/new/x", access, workshop)
        assert not place_directory(held.descriptor, "link", access.apply, workshop)
        assert workshop.names() == []
    held.remove_tree(name)
    assert existing_in(held, ["a/c/d", "a/none", "none/x", name]) == {"a/c/d"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_other_users_are_not_removed(held: Directory, tmp_path: Path) -> None:
    os.chown(tmp_path / "in/a/b/x", 4242, -1)
    with pytest.raises(PermissionError, match="belongs to user 4242"):
        held.remove_tree("a", {0})
    assert held.has("a/b/x")
    held.remove_tree("a", {0, 4242})
    assert held.names() == ["link"]


def test_directories_that_are_nested_too_deeply_stay(held: Directory, tmp_path: Path) -> None:
    place = os.open(tmp_path / "in", os.O_RDONLY)
    for _ in range(beneath.MAX_DEPTH + 5):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    with pytest.raises(OSError, match="too deep"):
        held.remove_tree("d")


# --- paths that a user names ----------------------------------------------------------------------


def resolved(path: Path) -> tuple[Path, Path, tuple[str, ...]]:
    found = resolve_path(path)
    with found.directory:
        assert os.readlink(f"/proc/self/fd/{found.directory.descriptor}") == str(
            found.directory.path
        )
        return found.path, found.directory.path, found.missing


def test_a_path_is_followed_as_far_as_it_exists(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": {"b": {}}, "file": b""})
    (tmp_path / "to_b").symlink_to(tmp_path / "a/b")
    (tmp_path / "a/up").symlink_to("../a/./b/..")
    (tmp_path / "to_nothing").symlink_to("new/deep")
    (tmp_path / "loop").symlink_to("loop")
    b = tmp_path / "a/b"
    assert resolved(b) == (b, b, ())
    assert resolved(tmp_path / "to_b") == (b, b, ())
    assert resolved(tmp_path / "a/up/b/x/y") == (b / "x/y", b, ("x", "y"))
    assert resolved(tmp_path / "to_b/../..") == (tmp_path, tmp_path, ())
    assert resolved(tmp_path / "to_nothing") == (
        tmp_path / "new/deep",
        tmp_path,
        ("new", "deep"),
    )
    assert resolved(Path("/")) == (Path("/"), Path("/"), ())
    with pytest.raises(NotADirectoryError):
        resolve_path(tmp_path / "file/x")
    with pytest.raises(OSError, match="symbolic"):
        resolve_path(tmp_path / "loop")
    with pytest.raises(FileNotFoundError):
        resolve_path(tmp_path / "none/../a")
    with pytest.raises(FileNotFoundError):
        open_directory(tmp_path / "none")


def test_relative_paths_begin_where_the_process_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolved(Path("a/x"))[0] == tmp_path / "a/x"


def test_a_path_that_other_users_can_move_is_exposed(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    (tmp_path / "shared/root").mkdir()

    def is_exposed(path: Path) -> bool:
        found = resolve_path(path)
        found.directory.close()
        return found.is_exposed

    assert not is_exposed(tmp_path / "shared/root")
    for mode, exposed in ((0o777, True), (0o1777, False), (0o775, True), (0o755, False)):
        (tmp_path / "shared").chmod(mode)
        assert is_exposed(tmp_path / "shared/root") is exposed
        assert is_exposed(tmp_path / "shared/new/root") is exposed
        assert is_exposed(tmp_path / "shared") is False
