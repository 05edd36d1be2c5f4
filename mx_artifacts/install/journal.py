"""The journal: the moves that an install is about to make, written before the first move.

If the receipt of a journal exists, the install is done, and the journal only has to be removed. Any
other journal belongs to an installer that died, and says what `commit.undo` must take back. It does
not record which of its moves have happened. That can be seen: an entry that was moved in has the
inode number that it had when it was staged.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mx_artifacts.errors import RollbackFailedError, UnsafePathError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.files import as_json
from mx_artifacts.filesystem.json_documents import field_of, read_document, relative_path, texts_of
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.install.receipts.receipt import RECEIPT_NAME
from mx_artifacts.install.workspace.workspace import JOURNAL_NAME, PREFIX, RECEIPTS

MAX_JOURNAL_BYTES = 128 * 1024 * 1024
"""Maximum size of a journal [bytes]: a million moves, as many as a bundle has members."""


@dataclass(frozen=True)
class Move:
    """A staged entry on its way in; "" is the whole root.

    Attributes:
        entry: its path, below the staged tree and below the root alike.
        inode: its inode number, which renames keep.
        replaces: an entry of that name was in the root when this was planned.
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


def save_journal(workspace: Directory, journal: Journal) -> None:
    """Write the journal of a workspace durably. Raises OSError."""
    workspace.write(JOURNAL_NAME, as_json(asdict(journal)))


def load_journal(workspace: Directory) -> Journal | None:
    """Read the journal of a workspace; None when there is none.

    Raises:
        RollbackFailedError: it is damaged, so it is unknown what to take back.
        OSError: it cannot be read.
    """
    try:
        return _journal(read_document(workspace, JOURNAL_NAME, MAX_JOURNAL_BYTES))
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        why = error.strerror if isinstance(error, OSError) else error
        raise RollbackFailedError(
            f"{workspace.path / JOURNAL_NAME} is not a valid journal: {why}",
            hint=f"remove the cache root and {workspace.path}, and install again",
        ) from error


def is_committed(journal: Journal) -> bool:
    """Return whether the receipt of a journal exists.

    It may be in the workspace of another root of the artifact. Raises OSError if that cannot be
    found out.
    """
    path = Path(journal.receipt)
    try:
        with open_directory(path.parent) as receipts:
            return receipts.has(path.name)
    except (FileNotFoundError, NotADirectoryError, UnsafePathError):
        return False


def _journal(document: Mapping[str, Any]) -> Journal:
    empty_root = document.get("empty_root")
    moves: list[Mapping[str, Any]] = field_of(document, "moves", list)
    return Journal(
        staged=_name(field_of(document, "staged", str)),
        receipt=_receipt_path(field_of(document, "receipt", str)),
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


def _receipt_path(text: str) -> str:
    """Return `text` when receipts are at such paths: a journal is not to ask for other files."""
    directory, _, name = text.rpartition("/")
    workspace = re.escape(f"/{PREFIX}")
    if re.search(rf"{workspace}(\.[^/]+)?/{RECEIPTS}\Z", directory) and RECEIPT_NAME.fullmatch(
        name
    ):
        return text
    raise ValueError(f"{text[:200]!r} is not the path of a receipt")


def _name(text: str) -> str:
    if "/" in relative_path(text):
        raise ValueError(f"{text!r} is not a plain name")
    return text
