"""Reads a bundle's table of members, and refuses everything that is damaged, hostile or ambiguous.

The standard library's reader is too lenient: it follows records that rename members, guesses after
damage, and differs between the Python versions found in images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from mx_artifacts.bundle.headers import (
    DIRECTORY_TYPE,
    FILE_TYPES,
    GNU_LONG_NAME_TYPE,
    PAX_TYPE,
    TAR_BLOCK_BYTES,
    ZERO_BLOCK,
    Extension,
    Header,
    decode_header,
    decode_long_name,
    decode_pax,
    padding_bytes,
    safe_mode,
    short_names,
)
from mx_artifacts.bundle.member_paths import MemberPaths
from mx_artifacts.bundle.names import path_fault
from mx_artifacts.core.digest import Bytes
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.errors import BundleError, UnsafePathError

_MAX_EXTENSION_BYTES = 64 * 1024
"""A path of 4,096 bytes and a few times and sizes need far less."""
_MAX_PADDING_BYTES = 1024 * 1024
"""Maximum number of zeros after the end of an archive: GNU tar fills records of 10 KiB."""

_FORBIDDEN_TYPES = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
}


@dataclass(frozen=True)
class BundleLimits:
    """What a bundle may hold at most; a scan's memory and time are bounded by these.

    Attributes:
        max_members: files and directories, those that paths only imply among them. The largest
            cache reported had 60,000 entries of 6 files.
        max_content_bytes: sum of the files' sizes.
        max_names_bytes: sum of the paths' lengths.
    """

    max_members: int = 1_000_000
    max_content_bytes: int = 1 << 40
    max_names_bytes: int = 256 * 1024 * 1024


DEFAULT_LIMITS = BundleLimits()


class BundleMember(NamedTuple):
    """A file or directory of a bundle, safe to be written below a root.

    `path` is relative and "/"-separated; `mode` has passed `safe_mode`; `mtime_ns` is 0 if it is
    not needed; `offset` is where the content starts in the bundle [bytes].
    """

    path: str
    is_dir: bool
    size: int
    mode: int
    mtime_ns: int
    offset: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a member's content: `data` belongs at `position` in it [bytes].

    A directory and an empty file come as one piece without data.
    """

    member: BundleMember
    position: int
    data: memoryview


def scan_bundle(content: Bytes, limits: BundleLimits = DEFAULT_LIMITS) -> list[BundleMember]:
    """Return the members of a whole bundle in their order; raises what `BundleScanner` raises."""
    scanner = BundleScanner(len(content), limits)
    members = [piece.member for piece in scanner.feed(memoryview(content)) if not piece.position]
    scanner.finish()
    return members


class BundleScanner:
    """Reads a bundle that arrives piece by piece and refuses everything that is not plain.

    A member for the root itself ("./", as GNU tar has it) is accepted and left out. Directories
    that are only implied by a path are not listed. Not thread-safe.
    """

    def __init__(self, bundle_bytes: int, limits: BundleLimits = DEFAULT_LIMITS) -> None:
        """Expect `bundle_bytes` in all."""
        self._limits = limits
        self._bundle_bytes = bundle_bytes
        self._position = 0
        self._paths = MemberPaths(limits.max_members, limits.max_names_bytes)
        self._content_bytes = 0
        self._root_seen = False
        self._extension: Extension | None = None
        self._extended: Header | None = None  # whose payload comes next
        self._partial = bytearray()  # of a block that came in parts
        self._member: BundleMember | None = None
        self._content_left = 0
        self._padding_left = 0
        self._zero_blocks = 0

    def feed(self, data: memoryview) -> Iterator[Piece]:
        """Take the bytes that follow those before; use up the pieces before the next call.

        Raises:
            UnsafePathError: a member would leave its root, or is not a regular file or directory.
            BundleError: the archive is damaged, ambiguous or beyond the limits.
        """
        start = 0
        while start < len(data):
            if self._content_left:
                count = min(self._content_left, len(data) - start)
                assert self._member is not None
                position = self._member.size - self._content_left
                self._content_left -= count
                yield Piece(self._member, position, data[start : start + count])
            elif self._padding_left:
                count = min(self._padding_left, len(data) - start)
                self._padding_left -= count
            elif self._zero_blocks == 2:
                count = len(data) - start
                self._check_behind_end(data[start:])
            else:
                count = min(self._block_bytes() - len(self._partial), len(data) - start)
                self._partial += data[start : start + count]
                if len(self._partial) == self._block_bytes():
                    block, self._partial = bytes(self._partial), bytearray()
                    self._position += count
                    start += count
                    yield from self._take(block)
                    continue
            self._position += count
            start += count

    def finish(self) -> None:
        """Check that the bundle has come to its end. Raises BundleError."""
        if self._zero_blocks == 1:
            raise BundleError("bundle has one zero block, not the two that end an archive")
        if self._zero_blocks != 2:
            raise BundleError(f"bundle is cut off at byte {self._position}")

    def _block_bytes(self) -> int:
        if self._extended is None:
            return TAR_BLOCK_BYTES
        return self._extended.size + padding_bytes(self._extended.size)

    def _take(self, block: bytes) -> Iterator[Piece]:
        """Use a header, or the payload of an extended one; yield a member without content."""
        if self._extended is not None:
            self._use_extension(block)
            return
        if self._zero_blocks or block == ZERO_BLOCK:
            self._use_zero_block(block)
            return
        start = self._position - TAR_BLOCK_BYTES
        try:
            header = decode_header(block)
            if header.kind in (PAX_TYPE, GNU_LONG_NAME_TYPE):
                self._begin_extension(header)
                return
            member = self._member_of(header, self._extension or Extension())
        except BundleError as error:
            error.args = (f"{error} (bundle header at byte {start})",)  # say where
            raise
        self._extension = None
        if member is not None:
            self._member = member
            self._content_left, self._padding_left = member.size, padding_bytes(member.size)
            if not member.size:
                yield Piece(member, 0, memoryview(b""))

    def _begin_extension(self, header: Header) -> None:
        if self._extension is not None:
            raise BundleError("two extended headers precede one member")
        if header.size > _MAX_EXTENSION_BYTES:
            raise BundleError(f"extended header is too long: {header.size} bytes")
        self._extended = header
        if not header.size:
            self._use_extension(b"")

    def _use_extension(self, payload: bytes) -> None:
        header, self._extended = self._extended, None
        assert header is not None
        start = self._position - len(payload) - TAR_BLOCK_BYTES
        payload = payload[: header.size]
        try:
            self._extension = (
                decode_pax(payload) if header.kind == PAX_TYPE else decode_long_name(payload)
            )
        except BundleError as error:
            error.args = (f"{error} (bundle header at byte {start})",)
            raise

    def _use_zero_block(self, block: bytes) -> None:
        if self._extension is not None:
            raise BundleError("bundle ends after an extended header, without a member")
        if block != ZERO_BLOCK:
            raise BundleError("bundle has one zero block, not the two that end an archive")
        self._zero_blocks += 1

    def _check_behind_end(self, data: memoryview) -> None:
        """Check that nothing hides behind the end; GNU tar fills up with zeros."""
        rest = self._bundle_bytes - self._position
        if rest > _MAX_PADDING_BYTES or any(data):
            raise BundleError(f"bundle has {rest} bytes after its end")

    def _member_of(self, header: Header, extension: Extension) -> BundleMember | None:
        """Turn a header into a member, whose content begins here; None for the root itself."""
        path, is_dir = _path_of(header, extension)
        size = self._size_of(header, extension)
        if is_dir and size:
            raise BundleError(f"directory '{shown(path)}' has a size of {size} bytes")
        if path == ".":
            if self._root_seen or not is_dir:
                raise UnsafePathError("the root is in the bundle twice, or as a file")
            self._root_seen = True
            return None
        self._paths.add(path, is_dir)
        mtime_ns = header.mtime_ns if extension.mtime_ns is None else extension.mtime_ns
        mode = safe_mode(header.mode, is_dir=is_dir)
        return BundleMember(path, is_dir, size, mode, mtime_ns, self._position)

    def _size_of(self, header: Header, extension: Extension) -> int:
        size = header.size
        if extension.size is not None:
            if header.size not in (0, extension.size):
                raise BundleError(
                    "header and extended header state different sizes: the header "
                    f"states {header.size} bytes"
                )
            size = extension.size
        left = self._bundle_bytes - self._position
        if size > left:
            raise BundleError(f"member of {size} bytes is longer than the {left} bytes left")
        self._content_bytes += size
        if self._content_bytes > self._limits.max_content_bytes:
            raise BundleError(f"content exceeds {self._limits.max_content_bytes} bytes")
        return size


def _path_of(header: Header, extension: Extension) -> tuple[str, bool]:
    """Return a member's path, "." for the root, and whether it is a directory."""
    raw = header.name
    if extension.name is not None:
        if header.name not in short_names(extension.name):
            raise UnsafePathError(
                f"member {header.name[:80]!r} is renamed to {extension.name[:80]!r}"
            )
        raw = extension.name
    is_dir = header.kind == DIRECTORY_TYPE
    if not is_dir and header.kind not in FILE_TYPES:
        what = _FORBIDDEN_TYPES.get(header.kind)
        if what is not None:
            raise UnsafePathError(f"member {raw[:80]!r} is {what}")
        raise BundleError(f"member {raw[:80]!r} has the type {header.kind!r}, which is not allowed")
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        _refuse(f"name {raw[:80]!r} is not UTF-8")
    if is_dir:
        name = name.removesuffix("/")
    if name == ".":
        return name, is_dir
    path = name.removeprefix("./")
    fault = path_fault(path)
    if fault is not None:
        _refuse(f"member {name[:80]!r}: {fault}")
    return path, is_dir


def _refuse(message: str) -> NoReturn:
    raise UnsafePathError(message)
