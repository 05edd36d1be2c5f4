"""Which of many paths are as plain as those of caches are."""

from __future__ import annotations

from collections.abc import Sequence

from mx_artifacts.bulk.library import library, names_of


def count_plain(paths: Sequence[str]) -> int | None:
    """Return how many of the first paths are plain; None where nobody can tell fast.

    They are relative, of at most 255 bytes and 64 parts, each of ASCII letters, digits and
    "_", "+", "=", "@", "-" and ".", with another character than "." first.
    """
    compiled = library()
    if compiled is None or "\0" in "".join(paths):
        return None
    return int(compiled.bulk_plain(len(paths), names_of(paths)))
