"""Writes a bundle's members below a new directory as their bytes arrive, from several threads."""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress, repeat
from pathlib import Path

from mx_artifacts.bulk.create import Making, NewFiles, create_files
from mx_artifacts.bundle.index import MappedMember
from mx_artifacts.bundle.scan import BundleMember, Piece
from mx_artifacts.bundle.spans import Part, Span
from mx_artifacts.core.digest import crc32c, crc32c_hex, crc32c_join
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.errors import InstallVerificationError
from mx_artifacts.filesystem.access import Access, current_umask
from mx_artifacts.install.receipts.receipt import InstalledFile

Member = BundleMember | MappedMember
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ADOPT_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class _OpenFile:
    """An incomplete file, with offset, length and CRC32C of the pieces that have arrived."""

    descriptor: int
    left: int
    pieces: list[tuple[int, int, int]] = field(default_factory=list)

    def checksum(self) -> int:
        """Return the CRC32C of all its pieces, in their order."""
        whole = 0
        for _, length, part in sorted(self.pieces):
            whole = crc32c_join(whole, part, length)
        return whole


class TreeWriter:
    """Writes below `root`, a directory into which no other user can write.

    Everything gets the mode and owner that `access` gives, and files their modification time where
    the bundle has one. Nothing is synced to disk. `write` may be called from any thread; `close`
    when none writes any more.
    """

    def __init__(self, root: Path, access: Access) -> None:
        self._access = access
        self._umask = current_umask()
        self._root = os.open(root, _DIRECTORY_FLAGS)
        made = os.fstat(self._root)  # by this process, so all that it makes in there is owned alike
        self._gives = os.geteuid() == 0 and (made.st_uid, made.st_gid) != (access.uid, access.gid)
        owner = (access.uid, access.gid) if self._gives else None
        self._making = Making(owner, self._umask)
        self._lock = threading.RLock()
        self._modes: dict[int, int] = {}  # of files, by those they have in the bundle
        self._directories: dict[str, int] = {"": 0}  # each with the time that it shall have
        self._open_files: dict[str, _OpenFile] = {}
        self._written: list[InstalledFile] = []
        self.changed_at_ns: dict[str, int] = {}
        """Change time of each file when it was complete; if it differs now, the file changed."""

    def write(self, piece: Piece) -> None:
        """Write one piece; pieces come in any order. Raises OSError."""
        member = piece.member
        if member.is_dir:
            self.make_directory(member.path, member.mtime_ns)
        elif len(piece.data) == member.size:
            part = Part(member, 0, member.size, crc32c(piece.data))
            self._write_whole([part], array("q", [0]), piece.data)
        else:
            self._write_part(member, piece.position, piece.data, crc32c(piece.data))

    def write_span(self, span: Span, data: memoryview) -> None:
        """Write the parts of a span, whose bytes `data` were verified. Raises OSError."""
        parts, starts = span.parts, span.starts()
        are_whole = [part.length == part.member.size for part in parts]
        if not all(are_whole):
            for part, is_whole in zip(parts, are_whole, strict=True):
                if not is_whole:
                    content = span.content_of(part, data)
                    self._write_part(part.member, part.position, content, part.checksum)
            parts = tuple(compress(parts, are_whole))
            starts = array("q", compress(starts, are_whole))
        self._write_whole(parts, starts, data)

    def make_directory(self, path: str, mtime_ns: int) -> None:
        """Make a directory, and those above it; it gets its time, if it has one, by `finish`."""
        with self._lock:
            if path not in self._directories:
                self.make_directory(path.rpartition("/")[0], 0)
                mode = self._access.directory_mode
                os.mkdir(path, mode, dir_fd=self._root)
                if self._gives or mode & self._umask:
                    descriptor = os.open(path, _DIRECTORY_FLAGS, dir_fd=self._root)
                    try:
                        self._adopt(descriptor, mode)
                    finally:
                        os.close(descriptor)
            self._directories[path] = mtime_ns or self._directories.get(path, 0)

    def make_empty(self, members: Sequence[Member]) -> None:
        """Make files that have no content."""
        parts = [Part(member, 0, 0, 0) for member in members]
        self._write_whole(parts, array("q", bytes(8 * len(parts))), memoryview(bytearray()))

    def adopt(self, member: Member, pieces: Sequence[tuple[int, int, int]]) -> None:
        """Take over an existing file of another writer, with these pieces of it.

        A piece is (position, length, CRC32C). Missing pieces are written by `write`.
        """
        descriptor = os.open(member.path, _ADOPT_FLAGS, dir_fd=self._root)
        left = member.size - sum(length for _, length, _ in pieces)
        file = _OpenFile(descriptor, left, list(pieces))
        if left:
            self._open_files[member.path] = file
            return
        try:
            os.ftruncate(descriptor, member.size)
            os.fchmod(descriptor, self._access.file_mode(member.mode))
            self._complete(member, descriptor, file.checksum())
        finally:
            os.close(descriptor)

    def adopt_directory(self, path: str) -> None:
        """Take over an existing directory."""
        descriptor = os.open(path, _DIRECTORY_FLAGS, dir_fd=self._root)
        try:
            os.fchmod(descriptor, self._access.directory_mode)
            self._adopt(descriptor, self._access.directory_mode)
        finally:
            os.close(descriptor)
        self._directories[path] = 0

    def finish(self) -> tuple[tuple[InstalledFile, ...], tuple[str, ...]]:
        """Return all files and all directories, sorted by path, when every byte was written.

        Raises:
            InstallVerificationError: some were not.
            OSError
        """
        for path, file in self._open_files.items():
            raise InstallVerificationError(f"{file.left} bytes of '{shown(path)}' did not arrive")
        directories = sorted(path for path in self._directories if path)
        for path in reversed(directories):  # writing into a directory has changed its time
            if mtime_ns := self._directories[path]:
                os.utime(path, ns=(mtime_ns, mtime_ns), dir_fd=self._root)
        return tuple(sorted(self._written, key=lambda file: file.path)), tuple(directories)

    def close(self) -> None:
        """Close every descriptor; what was written stays. Idempotent."""
        for file in self._open_files.values():
            os.close(file.descriptor)
        self._open_files.clear()
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def _write_whole(self, parts: Sequence[Part], starts: array[int], data: memoryview) -> None:
        """Write files that each consist of one part, which begins at `starts` in `data`."""
        members = [part.member for part in parts]
        paths = [member.path for member in members]
        for directory in dict.fromkeys([path.rpartition("/")[0] for path in paths]):
            if directory not in self._directories:
                self.make_directory(directory, 0)
        sizes = [member.size for member in members]
        modes = [self._mode_of(member) for member in members]
        columns = (sizes, modes, [member.mtime_ns for member in members])
        files = NewFiles(paths, starts, *(array("q", column) for column in columns))
        mtimes_ns, ctimes_ns = create_files(self._root, files, data, self._making)
        self.changed_at_ns.update(zip(paths, ctimes_ns, strict=True))
        checksums = [crc32c_hex(part.checksum) for part in parts]
        arrived = repeat(None, len(paths))
        rows = zip(paths, sizes, modes, mtimes_ns, checksums, arrived, strict=True)
        self._written += map(InstalledFile._make, rows)

    def _write_part(self, member: Member, position: int, data: memoryview, checksum: int) -> None:
        with self._lock:
            file = self._open_files.get(member.path)
            if file is None:
                file = _OpenFile(self._create(member), member.size)
                self._open_files[member.path] = file
        _write_all(file.descriptor, data, position)
        with self._lock:
            file.pieces.append((position, len(data), checksum))
            file.left -= len(data)
            if file.left:
                return
            del self._open_files[member.path]
        try:
            self._complete(member, file.descriptor, file.checksum())
        finally:
            os.close(file.descriptor)

    def _create(self, member: Member) -> int:
        directory = member.path.rpartition("/")[0]
        if directory not in self._directories:
            self.make_directory(directory, 0)
        return os.open(member.path, _CREATE_FLAGS, self._mode_of(member), dir_fd=self._root)

    def _mode_of(self, member: Member) -> int:
        mode = self._modes.get(member.mode)
        if mode is None:
            mode = self._modes[member.mode] = self._access.file_mode(member.mode)
        return mode

    def _complete(self, member: Member, descriptor: int, checksum: int) -> None:
        mode = self._mode_of(member)
        if self._gives or mode & self._umask:
            self._adopt(descriptor, mode)
        if member.mtime_ns:
            os.utime(descriptor, ns=(member.mtime_ns, member.mtime_ns))
        found = os.fstat(descriptor)
        self.changed_at_ns[member.path] = found.st_ctime_ns
        self._written.append(
            InstalledFile(member.path, member.size, mode, found.st_mtime_ns, crc32c_hex(checksum))
        )

    def _adopt(self, descriptor: int, mode: int) -> None:
        """Give what was just made its owner, and the mode bits that the umask took from it."""
        if self._gives:
            os.chown(descriptor, self._access.uid, self._access.gid)
        if mode & self._umask:
            os.fchmod(descriptor, mode)


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count
