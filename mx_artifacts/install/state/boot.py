"""Decides whether files that were not synced can still be lost, or were lost with the machine.

The data that a process wrote outlives the process. It is lost only if the machine stops (a power
cut, a panic) before the kernel has written it to the disk. So a receipt with a boot id is checked
by the status of its files as long as the machine runs with this boot id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from mx_artifacts.errors import UnsafePathError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.install.receipts.receipt import InstalledEntry, InstalledFile, RootReceipt
from mx_artifacts.install.state.contents import entry_state
from mx_artifacts.install.state.file_status import have_status

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FAULT = "it was not on the disk when this machine, or the one that installed it, stopped"


@cache
def boot_id() -> str:
    """Return what names the machine's life since it was started; "" where it cannot be known."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def are_as_installed(
    receipt: RootReceipt,
    entries: Sequence[InstalledEntry],
    touched: tuple[str, ...],
    *,
    in_background: bool = False,
) -> list[bool]:
    """Return for each entry whether it is as `receipt` says; arguments as for `have_status`.

    The file status decides. If the files may have been lost, their CRC32C must be right, too.
    """
    unchanged = have_status(receipt.root, entries, touched, in_background=in_background)
    if not _may_be_lost(receipt):
        return unchanged
    try:
        with open_directory(Path(receipt.root)) as root:
            pairs = zip(unchanged, entries, strict=True)
            return [good and _is_intact(root, entry) for good, entry in pairs]
    except (OSError, UnsafePathError):
        return [False] * len(entries)


def _is_intact(root: Directory, entry: InstalledEntry) -> bool:
    try:
        return entry_state(root, entry).state == "intact"
    except OSError:
        return False  # it cannot be read


def lost_entries(
    root: Directory, entries: Iterable[str], receipts: Iterable[RootReceipt]
) -> Mapping[str, str]:
    """Return which of `entries` lost their content when the machine stopped, and log them.

    `receipts` are those of `root`, newest first. An entry is not among them if one of its files was
    written later (it has another modification time), because it may be in use.
    """
    wanted = set(entries)
    lost: dict[str, str] = {}
    for receipt in receipts:
        for entry in receipt.installed:
            if entry.entry in wanted:
                wanted.discard(entry.entry)  # older receipts do not speak of what is there
                if _may_be_lost(receipt) and _is_lost(root, entry):
                    lost[entry.entry] = _FAULT
    return lost


def _may_be_lost(receipt: RootReceipt) -> bool:
    return bool(receipt.boot_id) and receipt.boot_id != boot_id()


def _is_lost(root: Directory, entry: InstalledEntry) -> bool:
    try:
        state = entry_state(root, entry)
        files = {file.path: file for file in entry.files}
        untouched = (_is_untouched(root, files[path]) for path in state.changed)
        return state.state != "intact" and all(untouched)
    except OSError:
        return False  # the judge meets the same obstacle, and says so


def _is_untouched(root: Directory, file: InstalledFile) -> bool:
    found = root.status_of(file.path)
    return found.st_mtime_ns == file.mtime_ns or not found.st_size
