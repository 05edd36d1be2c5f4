"""Receipts that this process read or wrote lately, so that following a source does not parse them
again and again: one of ten thousand files takes 0.1 s."""

from __future__ import annotations

import threading
from pathlib import Path

from mx_artifacts.bulk.status import Stamp
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.install.receipts.receipt import Receipt, load_receipt_in

MAX_FILES = 50_000
"""Of all receipts that are kept: some 20 MB."""

_lock = threading.Lock()
_recent: dict[Path, tuple[Stamp, Receipt]] = {}  # the latest used comes last


def cached_receipt(directory: Directory, name: str) -> Receipt:
    """Return the receipt `name` in `directory`, as it is there now.

    Raises:
        FileNotFoundError: there is none.
        InstallError: as `load_receipt_in`.
    """
    path, stamp = directory.path / name, Stamp.of(directory.status_of(name))
    with _lock:
        known = _recent.get(path)
    is_known = known is not None and known[0] == stamp
    receipt = known[1] if known is not None and is_known else load_receipt_in(directory, name)
    _keep(path, stamp, receipt)
    return receipt


def remember(directory: Directory, name: str, receipt: Receipt) -> None:
    """Take what was just written to `name`, under the root's lock. Raises OSError."""
    _keep(directory.path / name, Stamp.of(directory.status_of(name)), receipt)


def _keep(path: Path, stamp: Stamp, receipt: Receipt) -> None:
    with _lock:
        _recent.pop(path, None)
        _recent[path] = stamp, receipt
        left = MAX_FILES
        for each, (_, kept) in reversed(list(_recent.items())):
            left -= sum(len(entry.files) for root in kept.roots for entry in root.installed)
            if left < 0:
                del _recent[each]
