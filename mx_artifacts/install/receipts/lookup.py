"""Finds the receipts of a root, and decides to which of them an entry belongs now."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mx_artifacts.errors import InstallError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.install.receipts.cache import cached_receipt
from mx_artifacts.install.receipts.receipt import Receipt, RootReceipt
from mx_artifacts.install.workspace.opening import receipt_directories

logger = logging.getLogger(__name__)

UNINSTALLED = ".uninstalled"
"""Suffix of a receipt whose install was removed completely; it is kept as a record."""


@dataclass(frozen=True)
class FoundReceipt:
    """A receipt and where it is."""

    path: Path
    receipt: Receipt


def find_receipts(root: Path) -> list[FoundReceipt]:
    """Return the receipts of artifacts whose first root is `root`, newest first.

    Changes nothing. A damaged receipt is passed over with a warning in the log.

    Raises:
        UnsafePathError: a stranger's link leads to the root.
    """
    with receipt_directories(root) as directories:
        return _newest_first([(each, name) for each in directories for name in _receipts_in(each)])


def receipts_in(directory: Directory, *, uninstalled: bool = False) -> list[FoundReceipt]:
    """Return the receipts in a directory, newest first; those undone too if asked for.

    Raises OSError when it cannot be listed.
    """
    names = _receipts_in(directory)
    if uninstalled:
        names += [each for each in directory.names() if each.endswith(f".json{UNINSTALLED}")]
    return _newest_first([(directory, name) for name in names])


def receipts_beside(receipt_path: Path) -> list[FoundReceipt]:
    """Return the receipts in the directory of one, newest first. Raises OSError."""
    with open_directory(receipt_path.parent) as directory:
        return receipts_in(directory)


def _receipts_in(directory: Directory) -> list[str]:
    return [name for name in directory.names() if name.endswith(".json")]


def receipts_of_root(found: Iterable[FoundReceipt], root: Path) -> list[RootReceipt]:
    """Return what each of `found` says of `root`, a path without links, in their order."""
    parts = (part for each in found for part in each.receipt.roots)
    return [part for part in parts if part.root == str(root)]


def newer_than(found: Sequence[FoundReceipt], receipt_path: Path) -> Sequence[FoundReceipt]:
    """Return those of `found` (newest first) that came after the one at `receipt_path`."""
    paths = [each.path for each in found]
    return found[: paths.index(receipt_path)] if receipt_path in paths else ()


def claims(found: Iterable[FoundReceipt], root: str) -> dict[str, Path]:
    """Map each entry that one of `found` (newest first) installed into `root` to its receipt."""
    owners: dict[str, Path] = {}
    for each in found:
        for part in each.receipt.roots:
            if part.root == root:
                for entry in part.installed:
                    owners.setdefault(entry.entry, each.path)
    return owners


def _newest_first(files: Iterable[tuple[Directory, str]]) -> list[FoundReceipt]:
    found = []
    for directory, name in files:
        try:
            receipt = cached_receipt(directory, name)
            # Names tell seconds only; an install may follow another at once.
            mtime_ns = directory.status_of(name).st_mtime_ns
            found.append((receipt.installed_at, mtime_ns, directory.path / name, receipt))
        except InstallError as error:
            logger.warning("%s", error)
        except FileNotFoundError:
            continue  # undone meanwhile
    found.sort(key=lambda each: each[:3], reverse=True)
    return [FoundReceipt(path, receipt) for _, _, path, receipt in found]
