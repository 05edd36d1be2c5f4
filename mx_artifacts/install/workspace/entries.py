"""Groups the files of a tree into entries, the units that are installed, kept or dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mx_artifacts.core.foreign_text import shown
from mx_artifacts.errors import InstallError, UnsafePathError
from mx_artifacts.install.workspace.workspace import PREFIX


def group_entries(leaves: Iterable[str], entry_of: Callable[[str], str]) -> dict[str, list[str]]:
    """Return the entries in sorted order, each with its leaves (files and empty directories).

    Raises:
        UnsafePathError: a leaf would be in the installer's own workspace.
        InstallError: `entry_of` names no ancestor of a leaf, or an entry within another entry.
    """
    entries: dict[str, list[str]] = {}
    members: list[str] = []
    latest, below = "", "/"  # most leaves are in the entry of the one before
    for leaf in sorted(leaves):
        entry = entry_of(leaf)
        if entry != latest or not leaf.startswith(below):
            _check_entry(leaf, entry)
            latest, below = entry, f"{entry}/"
            members = entries.setdefault(entry, [])
        members.append(leaf)
    for entry in entries:
        above = next((a for a in ancestors(entry) if a in entries), None)
        if above is not None:
            raise InstallError(
                f"the rule of the kind makes '{shown(entry)}' an entry within '{shown(above)}'"
            )
    return {entry: entries[entry] for entry in sorted(entries)}  # "a.b" comes before "a/c"


def _check_entry(leaf: str, entry: str) -> None:
    if leaf.startswith(PREFIX):
        raise UnsafePathError(
            f"the bundle has '{shown(leaf)}', a name that the installer itself uses"
        )
    if not entry or not f"{leaf}/".startswith(f"{entry}/"):
        raise InstallError(
            f"the rule of the kind maps '{shown(leaf)}' to '{shown(entry)}', which is not above it"
        )


def ancestors(path: str) -> list[str]:
    """Return the directories above `path`, outermost first: a/b/c gives a, a/b."""
    found = []
    end = path.find("/")
    while end >= 0:
        found.append(path[:end])
        end = path.find("/", end + 1)
    return found


def leaves_of(files: Iterable[str], directories: Iterable[str]) -> list[str]:
    """Return the files and the empty directories; `directories` has all directories."""
    files, directories = list(files), list(directories)
    filled = {path.rpartition("/")[0] for path in (*files, *directories)}  # and so all above it
    return files + [directory for directory in directories if directory not in filled]
