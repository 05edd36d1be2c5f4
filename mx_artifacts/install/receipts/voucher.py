"""A voucher: a further root's own confirmation that an install is recorded beside another root.

A receipt is kept with an artifact's first root. The owner of that root can edit it, and so name any
directory as a further root. So each further root has a voucher in its own workspace, which names
the receipt. Only a user who may write there can have created it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from mx_artifacts.errors import UnsafePathError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.install.workspace.opening import receipt_directories
from mx_artifacts.install.workspace.workspace import RECEIPTS, Workspace

_SUFFIX = ".voucher"
_MAX_BYTES = 16 * 1024  # of a path, and more
_ERRORS = (OSError, ValueError, UnsafePathError)


def vouch(workspace: Workspace, receipt_path: Path) -> None:
    """Record in a further root's workspace where the receipt of an install into it is.

    It does not wait for the disk: if the voucher is lost, the user must name the root to uninstall.
    Raises OSError.
    """
    with workspace.enter(RECEIPTS) as receipts:
        receipts.put(_name(receipt_path), str(receipt_path).encode(errors="surrogateescape"))


def withdraw(workspace: Workspace, receipt_path: Path) -> None:
    """Remove the voucher, if there is one."""
    with suppress(*_ERRORS), workspace.enter(RECEIPTS) as receipts:
        receipts.remove(_name(receipt_path))


def is_vouched_for(root: Path, receipt_path: Path) -> bool:
    """Return whether `root` has a voucher for the receipt. Changes nothing."""
    with suppress(*_ERRORS), receipt_directories(root) as directories:
        return any(_has_voucher(directory, receipt_path) for directory in directories)
    return False


def _has_voucher(directory: Directory, receipt_path: Path) -> bool:
    with suppress(*_ERRORS):
        content = directory.read(_name(receipt_path), _MAX_BYTES)
        return content == str(receipt_path).encode(errors="surrogateescape")
    return False


def _name(receipt_path: Path) -> str:
    return f"{receipt_path.name}{_SUFFIX}"
