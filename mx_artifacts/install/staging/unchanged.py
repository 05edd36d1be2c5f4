"""Finds entries of an artifact that are already in the root, as an earlier install put them there.

It uses only receipts, the member index and the status of files. So no byte of these entries is read
at a source. Here they are read only if they may have been lost when the machine stopped. A file to
which the engine has written since has another size or modification time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, islice
from operator import attrgetter, eq

from mx_artifacts.bundle.index import MappedMember
from mx_artifacts.install.receipts.receipt import InstalledEntry


def unchanged_entries(
    groups: Mapping[str, Sequence[str]],
    files: Mapping[str, MappedMember],
    existing: Iterable[InstalledEntry],
    *,
    keep_mtimes: bool,
) -> tuple[InstalledEntry, ...]:
    """Return those of `existing` that came as a bundle has them, and need not be fetched.

    `groups` has the leaves of each of the bundle's entries, and `files` those of them that are
    files.
    """
    known = [e for e in existing if len(groups.get(e.entry, ())) == len(e.files) > 0]
    return tuple(compress(known, _came_so(known, files, keep_mtimes=keep_mtimes)))


def _came_so(
    entries: Iterable[InstalledEntry], members: Mapping[str, MappedMember], *, keep_mtimes: bool
) -> Iterator[bool]:
    """Return for each entry whether its files were received as they would be received now.

    An entry with empty directories counts as new.
    """
    listed = list(entries)
    files = list(chain.from_iterable(map(attrgetter("files"), listed)))
    found = list(map(members.get, map(attrgetter("path"), files)))
    # Rows, made and then compared: half of the time that it takes one file after the other. Whether
    # a file may be run is all of its mode that is kept.
    come = [m and (m.size, m.checksum, m.mode & 0o111 > 0) for m in found]
    came = [
        (
            arrived[0] if arrived else size,
            int(arrived[1] if arrived else checksum, 16),
            mode & 0o111 > 0,
        )
        for _, size, mode, _, checksum, arrived in files
    ]
    same: Iterator[bool] = map(eq, come, came)
    if keep_mtimes:
        same = (
            is_same and not file.arrived and member is not None and member.mtime_ns == file.mtime_ns
            for is_same, member, file in zip(same, found, files, strict=True)
        )
    return (all(list(islice(same, len(entry.files)))) for entry in listed)
