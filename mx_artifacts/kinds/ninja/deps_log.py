r"""ninja's dependency log, `.ninja_deps` (version 4): the headers from which each output was made.

`# ninjadeps\n`, a 32-bit version, then records, in the machine's byte order. A record starts with
a 32-bit size of what follows; its top bit distinguishes the two sorts. A path: the name, padded
with NUL bytes to a multiple of four, then the complement of its number; paths are numbered as they
come.
The inputs of an output: the output's number, the 64-bit mtime (ns) that it had, the numbers of its
inputs. Records are appended; the last one of an output counts (ninja's src/deps_log.h).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

_HEADER = b"# ninjadeps\n" + struct.pack("=I", 4)
MAX_DEPS_BYTES = 8 << 20
"""Maximum size of the file [bytes]: as objects it takes up to ten times that. Real ones have below
1 MB."""

MAX_RECORDS = 100_000
"""Maximum number of records. Real files have a few thousand."""

_IS_INPUTS = 1 << 31
_MAX_RECORD_BYTES = (1 << 19) - 1  # kMaxRecordSize
_UINT32 = struct.Struct("=I")
_FIXED = struct.Struct("=IQ")


@dataclass(frozen=True)
class PathRecord:
    """Gives the next number to a path."""

    path: bytes


@dataclass(frozen=True)
class InputsRecord:
    """The inputs of an output, by number, and the output's mtime [ns since the epoch]."""

    output: int
    mtime_ns: int
    inputs: tuple[int, ...]


Record = PathRecord | InputsRecord


@dataclass(frozen=True)
class OutputInputs:
    """What was recorded last of an output: its mtime [ns since the epoch] and its inputs."""

    mtime_ns: int
    inputs: tuple[bytes, ...]


def inputs_by_output(records: Iterable[Record]) -> dict[bytes, OutputInputs]:
    """Return what was recorded last of each output, by its path."""
    paths, latest = [], {}
    for record in records:
        if isinstance(record, PathRecord):
            paths.append(record.path)
        else:
            latest[record.output] = record
    return {
        paths[output]: OutputInputs(record.mtime_ns, tuple(map(paths.__getitem__, record.inputs)))
        for output, record in latest.items()
    }


def parse_deps(content: bytes) -> tuple[Record, ...]:
    """Read a log. Raises ValueError: it is damaged, too long, or of another version."""
    if len(content) > MAX_DEPS_BYTES:
        raise ValueError(".ninja_deps is too long")
    if not content.startswith(_HEADER):
        raise ValueError(".ninja_deps is damaged, or not of version 4")
    records: list[Record] = []
    path_count, position = 0, len(_HEADER)
    while position < len(content):
        if len(records) >= MAX_RECORDS:
            raise ValueError(f".ninja_deps has more than {MAX_RECORDS} records")
        size, is_inputs, body = _cut(content, position)
        position += 4 + size
        if is_inputs:
            records.append(_inputs(body, path_count))
        else:
            records.append(_path(body, path_count))
            path_count += 1
    return tuple(records)


def _cut(content: bytes, position: int) -> tuple[int, bool, bytes]:
    if position + 4 > len(content):
        raise ValueError(".ninja_deps is cut short")
    (head,) = _UINT32.unpack_from(content, position)
    size = head & ~_IS_INPUTS
    body = content[position + 4 : position + 4 + size]
    if size % 4 or size > _MAX_RECORD_BYTES or len(body) != size:
        raise ValueError(".ninja_deps is damaged or cut short")
    return size, bool(head & _IS_INPUTS), body


def _path(body: bytes, number: int) -> PathRecord:
    path = body[:-4].rstrip(b"\0")
    padding = len(body) - 4 - len(path)
    if padding > 3 or len(body) < 8 or b"\0" in path or body[-4:] != _checksum(number):
        raise ValueError(".ninja_deps is damaged: a path record")
    return PathRecord(path)


def _checksum(number: int) -> bytes:
    return _UINT32.pack(~number & 0xFFFFFFFF)


def _inputs(body: bytes, path_count: int) -> InputsRecord:
    if len(body) < _FIXED.size:
        raise ValueError(".ninja_deps is damaged: an inputs record")
    output, mtime_ns = _FIXED.unpack_from(body)
    numbers = struct.unpack(f"={(len(body) - _FIXED.size) // 4}I", body[_FIXED.size :])
    if max(output, *numbers, 0) >= path_count:
        raise ValueError(".ninja_deps is damaged: a number without path")
    return InputsRecord(output, mtime_ns, numbers)


def format_deps(records: tuple[Record, ...]) -> bytes:
    """Return the file of `records`."""
    parts = [_HEADER]
    path_count = 0
    for record in records:
        if isinstance(record, PathRecord):
            body = record.path + bytes(-len(record.path) % 4) + _checksum(path_count)
            path_count += 1
            parts += [_UINT32.pack(len(body)), body]
        else:
            body = _FIXED.pack(record.output, record.mtime_ns)
            body += struct.pack(f"={len(record.inputs)}I", *record.inputs)
            parts += [_UINT32.pack(len(body) | _IS_INPUTS), body]
    return b"".join(parts)
