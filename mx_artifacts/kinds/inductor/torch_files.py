"""Checks whether a file that torch serialised is whole, without loading it (that runs its code).

Pickles (protocol 4 and 5) consist of frames, and of long strings between them, each with its length
before it. `CompiledArtifact.save` writes a CRC-32 of everything that follows it, then the length
and the name of the format (torch/_inductor/standalone_compile.py). Files of another form are not
judged.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.kinds.entry_checks import empty_fault, name_of

_PROTOCOL, _STOP = b"\x80", b"."
_LENGTH_BYTES = {
    **dict.fromkeys(b"\x95\x8d\x8e\x96", 8),  # FRAME, BINUNICODE8, BINBYTES8, BYTEARRAY8
    **dict.fromkeys(b"XB", 4),  # BINUNICODE, BINBYTES
}
_FORMATS = (b"CacheCompiledArtifact", b"AOTCompiledArtifact")
_CRC_BYTES, _FORMAT_AT = 4, 12
_READ_BYTES = 1024 * 1024
_MAX_STEPS = 200_000
"""Maximum number of frames and long strings that are looked at. A frame has 64 KiB or more."""


def pickle_fault(entry: EntryView, paths: Iterable[str]) -> str | None:
    """Refuse an entry if one of the pickles `paths` is empty or cut short."""
    for path in paths:
        fault = empty_fault(entry, [path])
        if fault is None and entry.read(path, 1) == _PROTOCOL and _is_cut(entry, path):
            fault = f"{name_of(path)} is cut short"
        if fault is not None:
            return fault
    return None


def _is_cut(entry: EntryView, path: str) -> bool:
    size, position = entry.files[path].size, 2  # after the opcode PROTO and its argument
    if entry.read(path, 1, size - 1) != _STOP:
        return True
    for _ in range(_MAX_STEPS):
        if position >= size:
            return position > size
        head = entry.read(path, 9, position)
        length_bytes = _LENGTH_BYTES.get(head[0])
        if length_bytes is None:
            return False  # an opcode outside of a frame: from here on nothing tells lengths
        if len(head) <= length_bytes:
            return True
        position += 1 + length_bytes + int.from_bytes(head[1 : 1 + length_bytes], "little")
    return False  # more parts than any pickle that torch writes: nobody knows


def artifact_is_damaged(entry: EntryView, path: str) -> bool:
    """Return whether a compiled artifact is not what torch wrote; its loader raises then."""
    name = entry.read(path, max(map(len, _FORMATS)), _FORMAT_AT)
    if not any(name.startswith(known) or known.startswith(name) for known in _FORMATS):
        return False
    checksum, size = 0, entry.files[path].size
    for offset in range(_CRC_BYTES, size, _READ_BYTES):
        checksum = zlib.crc32(entry.read(path, _READ_BYTES, offset), checksum)
    return entry.read(path, _CRC_BYTES) != checksum.to_bytes(_CRC_BYTES, "big")
