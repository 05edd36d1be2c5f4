"""Directory trees for tests: written, compared, generated."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from hypothesis import strategies as st

Tree = Mapping[str, "bytes | Tree"]
"""Names to a file's content or a directory's tree."""


def write_tree(root: Path, tree: Tree) -> Path:
    """Write `tree` below `root`, which is made if it is missing, and return `root`."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in tree.items():
        if isinstance(content, bytes):
            (root / name).write_bytes(content)
        else:
            write_tree(root / name, content)
    return root


def read_tree(root: Path) -> dict[str, bytes | None]:
    """Return all paths below `root` with their content; None for a directory."""
    found: dict[str, bytes | None] = {}
    for directory, names, files in os.walk(root):
        for name in names:
            found[os.path.relpath(os.path.join(directory, name), root)] = None
        for name in files:
            path = Path(directory, name)
            found[os.path.relpath(path, root)] = path.read_bytes()
    return found


def names() -> st.SearchStrategy[str]:
    """Names that a file may have and a bundle can carry."""
    characters = st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/")
    return st.text(characters, min_size=1, max_size=70).filter(
        lambda name: name not in (".", "..") and len(name.encode()) <= 255
    )


def trees() -> st.SearchStrategy[Tree]:
    """Trees of a few files and directories, without names that differ only by case or form."""

    def directory(children: st.SearchStrategy[bytes | Tree]) -> st.SearchStrategy[Tree]:
        return st.lists(
            st.tuples(names(), children),
            max_size=4,
            unique_by=lambda pair: unicodedata.normalize(
                "NFC", unicodedata.normalize("NFD", pair[0]).casefold()
            ),
        ).map(dict)

    files = st.binary(max_size=1500)
    # At least one file, for a root without any is refused.
    return directory(st.recursive(files, directory, max_leaves=8)).filter(_holds_a_file)


def _holds_a_file(tree: Tree) -> bool:
    return any(isinstance(child, bytes) or _holds_a_file(child) for child in tree.values())
