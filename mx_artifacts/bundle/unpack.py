"""Unpack a bundle into a new directory, having scanned all of it first."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mx_artifacts.bundle.scan import DEFAULT_LIMITS, BundleLimits, BundleMember, scan_bundle
from mx_artifacts.errors import BundleError, InstallError, NoSpaceError

_BLOCK_BYTES = 1024 * 1024
_IMPLIED_MODE = 0o755
"""Of directories that a path implies and no member describes."""

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def unpack_bundle(
    bundle: Path, destination: Path, limits: BundleLimits = DEFAULT_LIMITS
) -> list[BundleMember]:
    """Write a bundle's members below `destination` and return them.

    `destination` is a new directory: missing (its parent exists), or empty. The whole bundle is
    scanned and the space it needs is looked for before anything is written. Members belong to
    the calling user; files keep their modification time where the bundle has one. Nothing is
    synced to disk. On a failure later on, what was written stays and is the caller's to remove.

    Raises:
        UnsafePathError, BundleError: as `scan_bundle`; nothing was written.
        NoSpaceError: the file system is or would become full.
        InstallError: the destination cannot be written, or is not new.
    """
    with _reading(bundle) as file:
        members = scan_bundle(file, limits)
        with _writing(destination):
            _prepare(destination, members)
            root = os.open(destination, _DIRECTORY_FLAGS)
            try:
                _Unpacker(file, root).unpack(members)
            finally:
                os.close(root)
    return members


def _prepare(destination: Path, members: Sequence[BundleMember]) -> None:
    """Check that the destination is new and has room, and make it if it is missing."""
    try:
        empty = not os.listdir(destination)
    except FileNotFoundError:
        empty = True
    if not empty or destination.is_symlink():
        raise InstallError(
            f"{destination} is not a new, empty directory",
            hint="unpack into a new directory; a cache root is filled by installing",
        )
    existing = destination if destination.exists() else destination.parent
    space = os.statvfs(existing)
    block_bytes = space.f_frsize
    wanted_bytes = sum(-(-member.size // block_bytes) * block_bytes for member in members)
    free_bytes = space.f_bavail * block_bytes
    if wanted_bytes > free_bytes:
        raise NoSpaceError(f"{wanted_bytes} bytes are needed at {existing}, {free_bytes} are free")
    if space.f_files and len(members) > space.f_favail:
        raise NoSpaceError(f"{len(members)} inodes are needed at {existing}, {space.f_favail} are")
    destination.mkdir(exist_ok=True)


class _Unpacker:
    """Writes members below an open directory without following any link on the way."""

    def __init__(self, file: BinaryIO, root: int) -> None:
        self._bundle = file.fileno()
        self._root = root
        self._buffer = memoryview(bytearray(_BLOCK_BYTES))

    def unpack(self, members: Sequence[BundleMember]) -> None:
        directories = _directories(members)
        with _Parents(self._root) as parents:
            for path in directories:
                parent, name = parents.open(path)
                os.mkdir(name, 0o700, dir_fd=parent)
            for member in members:
                if not member.is_dir:
                    self._write_file(member, *parents.open(member.path))
            # Last and deepest first: writing into a directory changes its time.
            for path, described in reversed(directories.items()):
                _finish_directory(described, *parents.open(path))

    def _write_file(self, member: BundleMember, parent: int, name: str) -> None:
        descriptor = os.open(name, _CREATE_FLAGS, 0o600, dir_fd=parent)
        try:
            self._copy(member, descriptor)
            os.fchmod(descriptor, member.mode)
            if member.mtime_ns:
                os.utime(descriptor, ns=(member.mtime_ns, member.mtime_ns))
        finally:
            os.close(descriptor)

    def _copy(self, member: BundleMember, descriptor: int) -> None:
        offset, end = member.offset, member.offset + member.size
        while offset < end:
            block = self._buffer[: min(end - offset, _BLOCK_BYTES)]
            count = os.preadv(self._bundle, [block], offset)
            if not count:
                raise BundleError(f"bundle was cut short while {member.path!r} was read from it")
            offset += count
            written = 0
            while written < count:
                written += os.write(descriptor, block[written:count])


def _directories(members: Sequence[BundleMember]) -> dict[str, BundleMember | None]:
    """Return all directories, parents first; None where no member describes one."""
    found: dict[str, BundleMember | None] = {}
    for member in members:
        parent = member.path.rpartition("/")[0]
        while parent and parent not in found:
            found[parent] = None
            parent = parent.rpartition("/")[0]
        if member.is_dir:
            found[member.path] = member
    return dict(sorted(found.items(), key=lambda item: item[0].split("/")))


def _finish_directory(described: BundleMember | None, parent: int, name: str) -> None:
    descriptor = os.open(name, _DIRECTORY_FLAGS, dir_fd=parent)
    try:
        os.fchmod(descriptor, described.mode if described else _IMPLIED_MODE)
        if described and described.mtime_ns:
            os.utime(descriptor, ns=(described.mtime_ns, described.mtime_ns))
    finally:
        os.close(descriptor)


class _Parents:
    """Opens the directory of a path, part by part and following no link; keeps the last one."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._path = ""
        self._descriptor = root

    def __enter__(self) -> _Parents:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def open(self, path: str) -> tuple[int, str]:
        """Return the descriptor of the parent of `path` and the last part's name.

        The descriptor is valid until the next call.
        """
        parent, _, name = path.rpartition("/")
        if parent != self._path:
            self._close()
            for part in parent.split("/") if parent else ():
                opened = os.open(part, _DIRECTORY_FLAGS, dir_fd=self._descriptor)
                self._close()
                self._descriptor = opened
            self._path = parent
        return self._descriptor, name

    def _close(self) -> None:
        if self._descriptor != self._root:
            os.close(self._descriptor)
        self._descriptor, self._path = self._root, ""


@contextmanager
def _reading(bundle: Path) -> Iterator[BinaryIO]:
    try:
        with open(bundle, "rb") as file:
            yield file
    except OSError as error:
        raise BundleError(f"bundle {bundle} cannot be read ({error.strerror})") from error


@contextmanager
def _writing(destination: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpaceError(f"no space left at {destination}") from error
        raise InstallError(f"{destination} cannot be written ({error.strerror})") from error
