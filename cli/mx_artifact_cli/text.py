"""Formats values for humans."""

from __future__ import annotations


def printable(text: str) -> str:
    """Escape characters that would control a terminal or that cannot be encoded.

    File and model names come from other machines. Control characters, lone surrogates (from names
    that are not UTF-8), line ends and direction marks become backslash escapes.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def format_bytes(count: float) -> str:
    """Format a byte count in binary units: "512 B", "1.5 GiB"."""
    if abs(count) < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if abs(count) < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


def format_seconds(seconds: float) -> str:
    """Format a duration with its two largest units: "0.25 s", "42 s", "3 min 5 s", "2 h 7 min"."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def count_of(count: int, singular: str, plural: str = "") -> str:
    """Format a count with its noun: "1 file", "3 files", "2 entries"."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
