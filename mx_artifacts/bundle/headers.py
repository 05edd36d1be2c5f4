"""The 512-byte tar header and its extensions: written in one form, and read strictly.

Written: ustar, with a pax record only if a field cannot hold a value (docs/format.md). Read: ustar,
GNU and pax, as GNU tar and Python's tarfile write them. A header that two programs could read in
two ways is refused.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple
from zlib import adler32

from mx_artifacts.core.foreign_text import shown
from mx_artifacts.errors import BundleError

TAR_BLOCK_BYTES = 512
ZERO_BLOCK = bytes(TAR_BLOCK_BYTES)
END_OF_ARCHIVE = ZERO_BLOCK * 2

FILE_TYPES = (b"0", b"\0")
DIRECTORY_TYPE = b"5"
PAX_TYPE = b"x"
GNU_LONG_NAME_TYPE = b"L"

NAME_BYTES = 100
_MAX_OCTAL = 8**11 - 1  # size and mtime fields: 11 octal digits and a NUL
_MAX_NANOSECONDS = 2**63 - 1
_SECOND_NS = 1_000_000_000

_USTAR_MAGIC = b"ustar\x0000"
_GNU_MAGIC = b"ustar  \0"
_DECIMAL_TIME = re.compile(rb"(-?)([0-9]{1,20})(?:\.([0-9]{1,20}))?")
_DECIMAL_SIZE = re.compile(rb"[0-9]{1,20}")
_RECORD_LENGTH = re.compile(rb"([1-9][0-9]{0,6}) ")

_IGNORED_PAX_KEYS = frozenset((b"atime", b"ctime", b"comment", b"uid", b"gid", b"uname", b"gname"))


class Header(NamedTuple):
    """A checked header. `name` is raw bytes, with the ustar prefix put before it."""

    kind: bytes
    name: bytes
    mode: int
    size: int
    mtime_ns: int


class Extension(NamedTuple):
    """What an extended header says about the member that follows it; None where it is silent."""

    name: bytes | None = None
    size: int | None = None
    mtime_ns: int | None = None


def safe_mode(mode: int, is_dir: bool) -> int:
    """Reduce a mode to what may travel: rwx for the owner, r-x for others, nothing else.

    setuid, setgid, sticky and foreign write bits are dropped. The owner can always read, and
    write into a directory, so that a cache made under an odd umask can be used and removed.
    """
    return mode & 0o755 | (0o700 if is_dir else 0o400)


def padding_bytes(size: int) -> int:
    """Return how many bytes fill `size` up to whole blocks."""
    return -size % TAR_BLOCK_BYTES


# --- writing -------------------------------------------------------------------------------------


def encode_member(path: str, *, is_dir: bool, size: int, mode: int, mtime_ns: int) -> bytes:
    """Return the header blocks of a member; equal arguments give equal bytes everywhere.

    `mtime_ns` is written to the nanosecond. The standard library's writer is not used because
    its bytes differ between Python versions.
    """
    name = f"{path}/" if is_dir else path
    kind = DIRECTORY_TYPE if is_dir else b"0"
    if not mtime_ns and size <= _MAX_OCTAL and len(name) <= NAME_BYTES and name.isascii():
        return _block(name.encode(), kind, size, mode, 0)  # nothing needs an extension
    records: dict[str, str] = {}
    if not name.isascii() or len(name) > NAME_BYTES:
        records["path"] = name
    if size > _MAX_OCTAL:
        records["size"] = str(size)
    seconds, nanoseconds = divmod(mtime_ns, _SECOND_NS)
    if nanoseconds or not 0 <= seconds <= _MAX_OCTAL:
        records["mtime"] = _decimal_seconds(mtime_ns)
    extension = b""
    if records:
        payload = b"".join(_pax_record(key, value) for key, value in sorted(records.items()))
        extension = _block(b"././@PaxHeader", PAX_TYPE, len(payload), 0o644, 0) + payload
        extension += bytes(padding_bytes(len(payload)))
    # As Python's tarfile does it: readers that know no pax see a recognisable name.
    short_name = name.encode("ascii", "replace")[:NAME_BYTES]
    return extension + _block(
        short_name,
        kind,
        size if size <= _MAX_OCTAL else 0,
        mode,
        seconds if 0 <= seconds <= _MAX_OCTAL else 0,
    )


def _block(name: bytes, kind: bytes, size: int, mode: int, mtime_seconds: int) -> bytes:
    # uid and gid are 0.
    numbers = b"%07o\x000000000\x000000000\x00%011o\0%011o\0" % (mode, size, mtime_seconds)
    tail, tail_sum = _tail(kind)
    total = _sum_of_few(name) + _sum_of_few(numbers) + tail_sum
    return b"%b%b%06o\0 %b" % (name.ljust(NAME_BYTES, b"\0"), numbers, total, tail)


def _sum_of_few(data: bytes) -> int:
    """Return the sum of at most 256 bytes; Adler-32 has it, and is ten times as fast as `sum`."""
    return (adler32(data) & 0xFFFF) - 1


@cache
def _tail(kind: bytes) -> tuple[bytes, int]:
    """Return what follows the checksum, and what that and the checksum's blanks sum to."""
    tail = (kind + bytes(100) + _USTAR_MAGIC).ljust(TAR_BLOCK_BYTES - 148 - 8, b"\0")
    return tail, sum(tail) + 8 * ord(" ")


def _pax_record(key: str, value: str) -> bytes:
    body = f" {key}={value}\n".encode()
    length = len(body)
    while length != len(body) + len(str(length)):  # the length counts its own digits
        length = len(body) + len(str(length))
    return str(length).encode() + body


def _decimal_seconds(nanoseconds: int) -> str:
    sign = "-" if nanoseconds < 0 else ""
    seconds, fraction = divmod(abs(nanoseconds), _SECOND_NS)
    return f"{sign}{seconds}.{fraction:09d}"


# --- reading -------------------------------------------------------------------------------------


def decode_header(block: bytes) -> Header:
    """Check and take apart one header block.

    Raises:
        BundleError: it is damaged, from a tar program that is not understood, or has a value
            that no file has.
    """
    stated = _octal(block[148:156], "checksum")
    counted = _sum_of_few(block[:148]) + _sum_of_few(block[156:356]) + _sum_of_few(block[356:])
    if stated != counted + 8 * ord(" "):
        raise BundleError("header checksum does not match")
    name = _text_field(block[:NAME_BYTES])
    magic = block[257:265]
    if magic == _USTAR_MAGIC:
        prefix = _text_field(block[345:500])
        if prefix:
            name = prefix + b"/" + name
    elif magic != _GNU_MAGIC:
        raise BundleError("header is neither ustar nor GNU")
    elif any(block[369:500]):  # past atime and ctime: offset, sparse map, real size
        raise BundleError("header has multi-volume or sparse fields")
    size = _number(block[124:136], "size")
    if size < 0:
        raise BundleError(f"size {size} is negative")
    mtime_ns = _bounded_time(_number(block[136:148], "mtime") * _SECOND_NS)
    return Header(block[156:157], name, _octal(block[100:108], "mode"), size, mtime_ns)


def decode_pax(payload: bytes) -> Extension:
    """Read the records of an extended header; keys that change nothing here are ignored.

    Raises:
        BundleError: a record is malformed, stated twice, or would change what a member is
            (links, sparse files, other character sets, vendors' keys).
    """
    values: dict[bytes, bytes] = {}
    position = 0
    while position < len(payload):
        length = _RECORD_LENGTH.match(payload, position)
        end = position + int(length[1]) if length else 0
        if length is None or end <= length.end() or payload[end - 1 : end] != b"\n":
            raise BundleError("extended header has a malformed record")
        key, equals, value = payload[length.end() : end - 1].partition(b"=")
        if not equals or key in values:
            raise BundleError(f"extended header has a malformed or repeated record '{shown(key)}'")
        if key not in (b"path", b"size", b"mtime") and key not in _IGNORED_PAX_KEYS:
            raise BundleError(f"extended header has the record {key[:64]!r}, which is not allowed")
        values[key] = value
        position = end
    size, mtime = values.get(b"size"), values.get(b"mtime")
    return Extension(
        name=values.get(b"path"),
        size=None if size is None else _decimal_size(size),
        mtime_ns=None if mtime is None else _decimal_time_ns(mtime),
    )


def decode_long_name(payload: bytes) -> Extension:
    """Read a GNU long-name block: the name and one NUL.

    Raises:
        BundleError: it does not end with its only NUL.
    """
    if payload[-1:] != b"\0" or b"\0" in payload[:-1]:
        raise BundleError("long name does not end with exactly one NUL")
    return Extension(name=payload[:-1])


def short_names(name: bytes) -> tuple[bytes, bytes]:
    """Return what a plain header may hold when an extension carries `name` in full.

    GNU tar cuts the bytes, Python's tarfile cuts the ASCII form; any other name is a rename.
    """
    ascii_form = name.decode("utf-8", "replace").encode("ascii", "replace")
    return name[:NAME_BYTES], ascii_form[:NAME_BYTES]


def _text_field(field: bytes) -> bytes:
    text, _, rest = field.partition(b"\0")
    if rest.strip(b"\0"):
        raise BundleError("header has bytes after the end of a name")
    return text


def _octal(field: bytes, what: str) -> int:
    digits = field.rstrip(b" \0").lstrip(b" ")
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise BundleError(f"{what} field '{shown(field)}' is not a number")
    return int(digits, 8)


def _number(field: bytes, what: str) -> int:
    """Read octal digits, or GNU's base-256 form for values that do not fit them."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    if field[0] == 0xFF:
        return int.from_bytes(field, "big", signed=True)
    return _octal(field, what)


def _decimal_size(value: bytes) -> int:
    if not _DECIMAL_SIZE.fullmatch(value) or int(value) <= _MAX_OCTAL:
        # Programs write this record only where the plain field is too small; another one would
        # show different members to readers that do not know it.
        raise BundleError(
            f"extended size {value[:64]!r} is not a number that is too large for the plain field"
        )
    return int(value)


def _decimal_time_ns(value: bytes) -> int:
    match = _DECIMAL_TIME.fullmatch(value)
    if match is None:
        raise BundleError(f"extended mtime {value[:64]!r} is not a decimal number")
    fraction = (match[3] or b"")[:9].ljust(9, b"0")
    nanoseconds = int(match[2]) * _SECOND_NS + int(fraction)
    return _bounded_time(-nanoseconds if match[1] else nanoseconds)


def _bounded_time(nanoseconds: int) -> int:
    if abs(nanoseconds) > _MAX_NANOSECONDS:
        raise BundleError("modification time is out of range")
    return nanoseconds
