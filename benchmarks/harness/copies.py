"""Copies of a directory by the system's own programs, each checked byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.harness.cluster import fresh_root
from benchmarks.harness.processes import timed
from benchmarks.harness.tree import Tree, check_equal

_TAR_PIPE = 'mkdir "$1" && tar cf - -C "$0" . | tar xf - -C "$1"'
_CP_AND_SYNC = 'cp -a "$0" "$1" && sync -f "$1"'

Copy = Callable[[Path, Path], list[str]]
"""Returns the command that copies a directory to a path that does not exist yet."""

COPIES: Mapping[str, Copy] = {
    "cp": lambda source, root: ["cp", "-a", str(source), str(root)],
    "tar_pipe": lambda source, root: ["sh", "-c", _TAR_PIPE, str(source), str(root)],
    "rsync": lambda source, root: ["rsync", "-a", f"{source}/", f"{root}/"],
    "cp_synced": lambda source, root: ["sh", "-c", _CP_AND_SYNC, str(source), str(root)],
}


def copy(name: str, tree: Tree, place: Path) -> float:
    """Copy `tree` below `place`, check, and remove the copy; return the seconds of the copying."""
    with fresh_root(place) as root:
        seconds = timed(COPIES[name](tree.root, root))
        check_equal(tree.root, root, relocated=False)
    return seconds


def installed_copies(*names: str) -> list[str]:
    """Return those of `names` whose program this machine has."""
    return [name for name in names if name != "rsync" or shutil.which("rsync")]


def tar_to_file(tree: Tree, place: Path) -> float:
    """Write `tree` into one tar file below `place`, and remove it; return the seconds."""
    tar = place / "all.tar"
    try:
        return timed(["tar", "cf", str(tar), "-C", str(tree.root), "."])
    finally:
        tar.unlink(missing_ok=True)
