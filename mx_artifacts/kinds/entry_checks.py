"""Checks that an entry is committed and whole, shared by the kinds' `fault_of` rules.

Each check returns what is wrong, or None. The checks read the packed bytes, and check no more than
the compiler promises about a file. The kind says which files these are (docs/cache-facts.md).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable
from typing import Any

from mx_artifacts.bundle.entry import EntryView

MAX_JSON_BYTES = 2 << 20
"""Maximum size of a JSON document that is parsed [bytes]: as objects it takes up to thirty times
that. Real ones have kilobytes."""

_ELF_MAGIC = b"\x7fELF"
_ELF_HEADER_BYTES = 64
_ELF64_LITTLE = b"\x02\x01"  # EI_CLASS, EI_DATA: all machines with these GPUs, and their cubins


def name_of(path: str) -> str:
    """Return the last part of `path`."""
    return path.rpartition("/")[2]


def names_in(entry: EntryView, directory: str) -> list[str]:
    """Return the names of the files directly in `directory`, sorted."""
    return list(entry.names_by_directory.get(directory, ()))


def binary_fault(entry: EntryView) -> str | None:
    """Refuse libraries and device code that are empty or cut short.

    Loading a library that is cut short kills the process with SIGBUS; device code that is empty or
    cut short fails at its first launch. Every kind has at least this rule.
    """
    for path in entry.files:
        if path.endswith((".so", ".cubin", ".hsaco")):
            fault = _binary_file_fault(entry, path)
            if fault is not None:
                return fault
    return None


def _binary_file_fault(entry: EntryView, path: str) -> str | None:
    name, size = name_of(path), entry.files[path].size
    if not size:
        return f"{name} is empty"
    header = entry.read(path, _ELF_HEADER_BYTES)
    if _ELF_MAGIC.startswith(header) and len(header) < len(_ELF_MAGIC):
        return f"{name} is cut short"
    if not header.startswith(_ELF_MAGIC):
        # A library whose linker has not finished has no header yet. Device code need not be ELF.
        return f"{name} is not a shared library" if path.endswith(".so") else None
    if header[4:6] != _ELF64_LITTLE or len(header) < _ELF_HEADER_BYTES:
        return f"{name} is cut short" if len(header) < _ELF_HEADER_BYTES else None
    programs, sections = struct.unpack_from("<QQ", header, 0x20)
    program_size, program_count, section_size, section_count = struct.unpack_from(
        "<HHHH", header, 0x36
    )
    # Linkers write the section headers last, so what is cut off includes them.
    ends = (programs + program_size * program_count, sections + section_size * section_count)
    return f"{name} is cut short" if max(ends) > size else None


def empty_fault(entry: EntryView, paths: Iterable[str]) -> str | None:
    """Refuse an entry if one of the files `paths` has no content."""
    for path in paths:
        if not entry.files[path].size:
            return f"{name_of(path)} is empty"
    return None


def missing_fault(entry: EntryView, directory: str, names: Collection[str]) -> str | None:
    """Refuse a directory that lacks one of the files `names`, or holds it without content."""
    for name in names:
        path = f"{directory}/{name}"
        if path not in entry.files:
            return f"{name} is missing"
        if not entry.files[path].size:
            return f"{name} is empty"
    return None


def read_json(entry: EntryView, path: str) -> Any:
    """Return the JSON document `path`, or raise ValueError with the fault."""
    if entry.files[path].size > MAX_JSON_BYTES:
        raise ValueError(f"{name_of(path)} is too long to be checked")
    try:
        return json.loads(entry.read(path))
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise ValueError(f"{name_of(path)} is not JSON") from None


def json_fault(entry: EntryView, path: str) -> str | None:
    """Refuse a JSON file that does not parse: empty, or cut short."""
    try:
        read_json(entry, path)
    except ValueError as fault:
        return str(fault)
    return None
