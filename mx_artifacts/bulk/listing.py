"""Lists many directories, with the status of what is in them."""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Sequence
from ctypes import CDLL
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple

from mx_artifacts.bulk.beneath import open_beneath
from mx_artifacts.bulk.library import bytes_of, column_of, library, names_of
from mx_artifacts.bulk.status import Stamp, stamp_columns

_ROWS = 1024
_NAMES_BYTES = 64 * _ROWS
"""Room for the names of a few hundred directories of caches; where it does not suffice,
the next try has more."""


_LIST_FLAGS = os.O_RDONLY | os.O_DIRECTORY
_stamp = partial(tuple.__new__, Stamp)  # `_make` is not done in C


class Listing(NamedTuple):
    """The names in a directory, in any order, and the stamp of each, without following links.

    What cannot be looked at, as what went meanwhile, has a stamp of zeros. `error` is the errno for
    which the directory could not be listed, else 0.
    """

    names: Sequence[str]
    stamps: Sequence[Stamp]
    error: int = 0


def list_directories(root: int, paths: Sequence[str]) -> list[Listing]:
    """List directories below `root`, a descriptor, and itself, as the path ".".

    No symbolic link is followed, at the end of a path or on the way.
    """
    compiled = library()
    if compiled is None:
        return [_list(root, path) for path in paths]
    listings: list[Listing] = []
    room = 1
    while len(listings) < len(paths):
        some = _list_some(compiled, root, paths[len(listings) :], room)
        room *= 1 if some else 4
        listings += some
    return [
        _list(root, path) if listing.error == errno.EOVERFLOW else listing
        for path, listing in zip(paths, listings, strict=True)
    ]


def _list_some(compiled: CDLL, above: int, paths: Sequence[str], room: int) -> list[Listing]:
    """List the first of `paths`, as many as there is room for."""
    rows = room * _ROWS
    names, counts = bytearray(room * _NAMES_BYTES), array("q", bytes(8 * len(paths)))
    found = array("q", bytes(8 * len(Stamp._fields) * rows))
    done = compiled.bulk_list(
        above,
        len(paths),
        names_of(paths),
        bytes_of(names),
        len(names),
        bytes_of(found),
        rows,
        column_of(counts, len(paths)),
    )
    del counts[done:]
    total = sum(count for count in counts if count > 0)
    columns = (found[start : start + total] for start in range(0, len(found), rows))
    stamps = list(map(_stamp, zip(*columns, strict=True)))
    end = names.find(b"\0\0")  # behind the last name there is nothing yet
    texts = os.fsdecode(bytes(names[:end] if end >= 0 else names)).split("\0")[:total]
    starts = accumulate((max(0, count) for count in counts), initial=0)
    return [
        Listing(texts[start:end], stamps[start:end], max(0, -count))
        for count, (start, end) in zip(counts, pairwise(starts), strict=True)
    ]


def _list(root: int, path: str) -> Listing:
    try:
        directory = open_beneath(root, path, _LIST_FLAGS)
        try:
            names = os.listdir(directory)
            columns = stamp_columns(directory, names)
        finally:
            os.close(directory)
        return Listing(names, list(map(_stamp, zip(*columns, strict=True))))
    except OSError as error:
        return _unlisted(error)


def _unlisted(error: OSError) -> Listing:
    return Listing((), (), error.errno or errno.EIO)
