"""How the files of a cache show that an engine used it, or compiled beside it."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class UsageMarkers:
    """Signs of use, as fnmatch patterns that match as those of `PackRules.exclude` do.

    Attributes:
        compiled: files that only a compile writes.
        touched_on_hit: files whose mtime a hit moves.
    """

    compiled: tuple[str, ...] = ("*",)
    touched_on_hit: tuple[str, ...] = ()


NINJA_SIGNS = UsageMarkers(compiled=("*.so", "*.o"))
"""ninja may rewrite its own files where it builds nothing."""


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Return whether one of `patterns` covers a relative path, or a directory above it."""
    parts = path.split("/")
    return any(
        fnmatchcase(path, pattern)
        if "/" in pattern
        else any(fnmatchcase(part, pattern) for part in parts)
        for pattern in patterns
    )
