"""Checks whether the paths of a tree are as plain as those of caches."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from mx_artifacts.bulk.library import column_of, library, names_of


def are_plain_tree(paths: Sequence[str], are_dirs: Sequence[bool]) -> bool:
    """Return whether it is certain that paths can be created below a directory, in this order.

    They are relative, of at most 255 bytes and 64 parts, each of ASCII letters, digits and
    "_", "+", "=", "@", "-" and ".", with another character than "." first. A directory is
    before what is in it, each is listed, and the names in it ascend, ignoring case; so no two paths
    name the same file. Return False if that is not true, or if it cannot be found out quickly.
    """
    compiled, count = library(), len(paths)
    if compiled is None:
        return False
    try:
        names = names_of(paths)
    except ValueError:  # a NUL
        return False
    return bool(compiled.bulk_tree(count, names, column_of(array("q", are_dirs), count)) == count)
