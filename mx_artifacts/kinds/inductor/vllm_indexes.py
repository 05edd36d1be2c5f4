"""Rewrites the absolute paths in vLLM's index files for the root they will be in.

`vllm_compile_cache.py` names each artifact by a key and by its absolute path. vLLM 0.33 looks for
the key beside the index; older ones read the path (vllm#52154) and fail where it is not there, or
take what another cache left there. Both are content with the path of where the artifact is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from mx_artifacts.bulk.overwrite import overwrite
from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.filesystem.regular_file import read_regular_file
from mx_artifacts.kinds.base import FixupReport
from mx_artifacts.kinds.inductor.literals import (
    MAX_LITERAL_BYTES,
    LiteralString,
    strings_of,
    with_strings,
)
from mx_artifacts.kinds.inductor.vllm_hash_directories import (
    INDEX_FILE,
    artifacts_of,
    hash_directory_of,
)


def relocate_vllm_indexes(staged: Path, root: Path) -> FixupReport:
    """Make vLLM's index files below `staged` right for the same place below `root`.

    A path to what is not part of its hash directory stays, and is reported as unverified. A hash
    directory with an index that vLLM could not read, or that names an artifact which is not there,
    is removed and reported: the engine would not start with it. Not every publisher looks.
    """
    rewritten = 0
    dropped: dict[str, str] = {}
    unverified: dict[str, str] = {}
    for index in [Path(parent, INDEX_FILE) for parent, _, f in os.walk(staged) if INDEX_FILE in f]:
        tree = hash_directory_of(index.relative_to(staged).as_posix())
        if tree is None or not index.is_file():
            continue  # not vLLM's, or removed with another index of its tree
        try:
            text = read_regular_file(index, MAX_LITERAL_BYTES).decode("utf-8")
            strings = strings_of(text)
        except (OSError, ValueError):
            text, strings, fault = "", [], "is damaged: vLLM cannot read it"
        else:
            missing = [
                each for each in artifacts_of(strings) if not os.path.exists(index.parent / each)
            ]
            fault = f"names {shown(missing[0])}, which is missing" if missing else ""
        if fault:
            shutil.rmtree(staged / tree)
            dropped[tree] = f"{_inside(index, staged / tree)} {fault}"
            continue
        changes = dict(_changes(strings, index, staged, tree, root))
        lost = min((old for old, new in changes.items() if not new), default="")
        if lost:
            unverified[tree] = (
                f"{_inside(index, staged / tree)} names {shown(lost)}, which is not part of it"
            )
        moved = {old: new for old, new in changes.items() if new and new != old}
        if moved:
            overwrite(index, with_strings(text, strings, moved).encode("utf-8"))
            rewritten += 1
    return FixupReport(rewritten, dropped, unverified)


def path_elsewhere(entry: EntryView, root: Path) -> str:
    """Return a path in an index of `entry`, which is in `root`, that leads elsewhere, or ""."""
    for path in entry.files:
        if path.rpartition("/")[2] == INDEX_FILE:
            strings = strings_of(entry.read(path).decode("utf-8"))
            for old, new in _changes(strings, root / path, root, entry.path, root):
                if old != new:
                    return old
    return ""


def lacking_index(entry: EntryView, fetched: Path | None) -> str:
    """Return an index that the fetched tree of `entry` has and the existing one has not, or "".

    vLLM names a directory, and describes it, before it compiles; it may have got no further.
    """
    if fetched is not None:
        for index in sorted((fetched / entry.path).rglob(INDEX_FILE)):
            path = index.relative_to(fetched).as_posix()
            if path not in entry.files:
                return path[len(entry.path) + 1 :]
    return ""


def _inside(index: Path, tree: Path) -> str:
    return index.relative_to(tree).as_posix()


def _changes(
    strings: Iterable[LiteralString], index: Path, staged: Path, tree: str, root: Path
) -> Iterator[tuple[str, str]]:
    """Yield each absolute path in an index, and that of the same file below `root`, if any."""
    for old in sorted({each.value for each in strings if each.value.startswith("/")}):
        _, found, rest = old.rpartition(f"/{tree}/")
        candidates = [f"{tree}/{rest}"] if found else []
        candidates.append((index.parent / os.path.basename(old)).relative_to(staged).as_posix())
        inside = (path for path in candidates if ".." not in path)
        here = next((path for path in inside if os.path.exists(staged / path)), None)
        yield old, os.path.join(os.path.abspath(root), here) if here is not None else ""
