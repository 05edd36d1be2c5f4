"""The journal: what an install is about to move, written before the first move.

A journal whose receipt exists is done and only waits to be removed. Any other belongs to an
installer that died, and tells `commit.undo` what to take back. Which of its moves had happened is
not written but seen: an entry that was moved in carries the inode number it had when staged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mx_artifacts.errors import RollbackFailedError
from mx_artifacts.filesystem.files import write_json
from mx_artifacts.filesystem.json_documents import field_of, read_document, relative_path, texts_of


@dataclass(frozen=True)
class Move:
    """A staged entry on its way in; "" is the whole root.

    Attributes:
        entry: its path, below the staged tree and below the root alike.
        inode: its inode number, which renames keep.
        replaces: an entry of that name stood in the root when this was planned.
    """

    entry: str
    inode: int
    replaces: bool


@dataclass(frozen=True)
class EmptyRoot:
    """The empty directory that a whole-root move replaces, to be made again when taken back."""

    mode: int
    uid: int
    gid: int


@dataclass(frozen=True)
class Journal:
    """Everything that one install does to one root.

    Attributes:
        staged: name of the staged tree in the workspace's staging directory.
        receipt: absolute path of the receipt whose existence means "committed".
        moves: in the order in which they are made.
        new_directories: made on the way to entries, outermost first.
        empty_root: set when the root was an empty directory and moves as a whole.
    """

    staged: str
    receipt: str
    moves: tuple[Move, ...]
    new_directories: tuple[str, ...] = ()
    empty_root: EmptyRoot | None = None


def save_journal(path: Path, journal: Journal) -> None:
    """Write the journal durably. Raises OSError."""
    write_json(path, asdict(journal))


def load_journal(path: Path) -> Journal | None:
    """Read the journal; None when there is none.

    Raises:
        RollbackFailedError: it is damaged, so that nobody knows what to take back.
    """
    try:
        return _journal(read_document(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise RollbackFailedError(
            f"{path} is not a valid journal: {error}",
            hint=f"remove the cache root and {path.parent}, and install again",
        ) from error


def _journal(document: Mapping[str, Any]) -> Journal:
    empty_root = document.get("empty_root")
    moves: list[Mapping[str, Any]] = field_of(document, "moves", list)
    return Journal(
        staged=_name(field_of(document, "staged", str)),
        receipt=field_of(document, "receipt", str),
        moves=tuple(map(_move, moves)),
        new_directories=tuple(map(relative_path, texts_of(document, "new_directories"))),
        empty_root=None
        if empty_root is None
        else EmptyRoot(*(field_of(empty_root, name, int) for name in ("mode", "uid", "gid"))),
    )


def _move(document: Mapping[str, Any]) -> Move:
    entry = field_of(document, "entry", str)
    return Move(
        entry=relative_path(entry) if entry else "",
        inode=field_of(document, "inode", int),
        replaces=field_of(document, "replaces", bool),
    )


def _name(text: str) -> str:
    if "/" in relative_path(text):
        raise ValueError(f"{text!r} is not a plain name")
    return text
