"""The receipt: what was installed, from which source, when. It is the commit point of an install.

A receipt stays in the workspace of the artifact's first root. To find out what happened to a root
later (was a file changed or removed?), compare the root with the receipt.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from mx_artifacts.core.foreign_text import shown
from mx_artifacts.errors import ConfigurationError, InstallError
from mx_artifacts.filesystem.beneath import Directory, nothing
from mx_artifacts.filesystem.busy import PASSING
from mx_artifacts.filesystem.files import as_json
from mx_artifacts.filesystem.json_documents import field_of, read_document, relative_path, texts_of
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.install.base import ArtifactOrigin
from mx_artifacts.runtime.gc_pause import gc_paused

logger = logging.getLogger(__name__)

FORMAT_VERSION = 3
RECEIPT_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9A-Za-z]{1,12}(\.\d+)?\.json")
MAX_RECEIPT_BYTES = 256 * 1024 * 1024
"""Maximum size of a receipt [bytes]: of the largest cache reported, 360,000 files, it has 60 MB."""
_FILE_TYPES = (str, int, int, int, str)  # of all but the last field, `arrived`
_CHECKSUM = re.compile(r"[0-9a-f]{8}")


class InstalledFile(NamedTuple):
    """A file as it was installed: path below the root, size [bytes], mode bits, mtime [ns].

    `checksum` is the CRC32C of its content, 8 hex characters, taken from the bytes as they came
    from the source; reading every file again for a SHA-256 would cost as much as the install.
    `arrived` has size and checksum as they came, where a fix-up changed the file since.
    """

    path: str
    size: int
    mode: int
    mtime_ns: int
    checksum: str
    arrived: tuple[int, str] | None = None


@dataclass(frozen=True)
class InstalledEntry:
    """An entry that was moved in, with its files."""

    entry: str
    files: tuple[InstalledFile, ...]


@dataclass(frozen=True)
class RootReceipt:
    """One root; see `RootReport`.

    `made` are the directories that the install made on the way to its entries, outermost first;
    "" is the root itself. An uninstall also removes these directories, if they are empty. `boot_id`
    identifies the boot of the machine (boot.py) during which the entries' files were written
    without waiting for the disk; "" if they were on the disk before this receipt.
    """

    name: str
    root: str
    installed: tuple[InstalledEntry, ...]
    kept: tuple[str, ...]
    dropped: Mapping[str, str]
    made: tuple[str, ...] = ()
    unusable: Mapping[str, str] = field(default_factory=dict)
    boot_id: str = ""


@dataclass(frozen=True)
class Receipt:
    """One install of one artifact. `installed_at` is UTC, ISO 8601."""

    artifact: ArtifactOrigin
    installed_at: str
    roots: tuple[RootReceipt, ...]
    format_version: int = FORMAT_VERSION


def new_receipt_name(directory: Directory, artifact_id: str, now_seconds: float) -> str:
    """Return a name that is free in `directory`; names sort by time. Under the root's lock."""
    moment = datetime.fromtimestamp(now_seconds, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    stem = f"{moment}-{artifact_id[:12]}"
    name, count = f"{stem}.json", 1
    while directory.has(name):
        count += 1
        name = f"{stem}.{count}.json"
    return name


def format_time(now_seconds: float) -> str:
    """Return `now_seconds` since the epoch as UTC in ISO 8601."""
    return datetime.fromtimestamp(now_seconds, timezone.utc).isoformat(timespec="milliseconds")


def save_receipt(
    directory: Directory,
    name: str,
    receipt: Receipt,
    before_rename: Callable[[], None] = nothing,
) -> None:
    """Write the receipt, as `Directory.put` does, and make it durable.

    Raises:
        InstallError: it is too long to be read again. OSError
    """
    with gc_paused():
        content = as_json(_document(receipt))
    if len(content) > MAX_RECEIPT_BYTES:
        raise InstallError(
            f"the receipt of this install would have {len(content)} bytes, more than "
            f"{MAX_RECEIPT_BYTES}",
            hint="publish the cache in parts",
        )
    directory.put(name, content, before_rename)
    try:
        directory.sync()
    except OSError as error:  # it has its name, so the install is done
        if error.errno not in PASSING:
            raise
        logger.warning("%s may not be on the disk yet: %s", directory.path / name, error)


def _document(receipt: Receipt) -> dict[str, Any]:
    """Return the receipt as JSON has it, each of its tens of thousands of files as an array."""
    return {
        **vars(receipt),
        "artifact": vars(receipt.artifact),
        "roots": [
            {
                **vars(root),
                "dropped": dict(root.dropped),
                "unusable": dict(root.unusable),
                "installed": [
                    {"entry": entry.entry, "files": entry.files} for entry in root.installed
                ],
            }
            for root in receipt.roots
        ],
    }


class _OtherFormatError(ValueError):
    """The receipt is of another release."""


_TAKE_OVER = "`fetch-and-install --replace` takes over what it lists"


def load_receipt(path: Path) -> Receipt:
    """Read and check a receipt; raises as `load_receipt_in`."""
    try:
        with open_directory(path.parent) as directory:
            return load_receipt_in(directory, path.name)
    except OSError as error:
        raise InstallError(
            f"{path} is not a valid receipt: {error}", hint=f"remove {path}, or restore it"
        ) from error


def load_receipt_in(directory: Directory, name: str) -> Receipt:
    """Read and check the receipt `name` in `directory`.

    Raises:
        InstallError: it cannot be read, or is damaged; names the file and the field.
    """
    path = directory.path / name
    try:
        return _receipt(read_document(directory, name, MAX_RECEIPT_BYTES))
    except _OtherFormatError as error:
        raise InstallError(
            f"{path} is {error}", hint=f"{_TAKE_OVER}, then remove {path}"
        ) from error
    except (OSError, ValueError) as error:
        raise InstallError(
            f"{path} is not a valid receipt: {error}", hint=f"remove {path}, or restore it"
        ) from error


def load_named_receipt(path: Path) -> Receipt:
    """Read and check a receipt whose path a user stated; the path may be wrong.

    Raises:
        ConfigurationError: it is not a receipt, or is damaged; the message says why.
    """
    try:
        with open_directory(path.parent) as directory:
            return _receipt(read_document(directory, path.name, MAX_RECEIPT_BYTES))
    except _OtherFormatError as error:
        raise ConfigurationError(f"{path} is {error}", hint=_TAKE_OVER) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(
            f"{path} is no receipt: {reason}",
            hint="state the path that fetch-and-install printed, or name the cache: --kind KIND "
            "[--root PATH]",
        ) from error


def receipts_of(directory: Directory, artifact_id: str) -> Iterator[tuple[str, Receipt]]:
    """Yield the valid receipts of one artifact, newest first; damaged ones are passed over."""
    for name in reversed(directory.names()):
        if not name.endswith(".json") or f"-{artifact_id[:12]}" not in name:
            continue
        try:
            receipt = load_receipt_in(directory, name)
        except InstallError:
            continue
        if receipt.artifact.artifact_id == artifact_id:
            yield name, receipt


def _receipt(document: Mapping[str, Any]) -> Receipt:
    version = field_of(document, "format_version", int)
    if version != FORMAT_VERSION:
        raise _OtherFormatError(
            f"a receipt of format {version}, which another release wrote; this release reads "
            f"format {FORMAT_VERSION}"
        )
    if not field_of(document, "roots", list):
        raise ValueError("'roots' is empty")
    origin = field_of(document, "artifact", dict)
    names: tuple[str, ...] = ("artifact_id", "mx_source_id", "worker_id", "endpoint", "kind")
    if "transport" in origin:
        names = (*names, "transport")
    return Receipt(
        artifact=ArtifactOrigin(**{name: field_of(origin, name, str) for name in names}),
        installed_at=field_of(document, "installed_at", str),
        roots=tuple(map(_root, field_of(document, "roots", list))),
    )


def _root(document: Mapping[str, Any]) -> RootReceipt:
    root = field_of(document, "root", str)
    if not root.startswith("/"):
        raise ValueError(f"root '{shown(root)}' is not absolute")
    return RootReceipt(
        name=field_of(document, "name", str),
        root=root,
        installed=tuple(map(_entry, field_of(document, "installed", list))),
        kept=tuple(map(relative_path, texts_of(document, "kept"))),
        dropped=_reasons(document, "dropped"),
        made=tuple(path and relative_path(path) for path in texts_of(document, "made")),
        # Absent from receipts of before it was known.
        unusable=_reasons(document, "unusable") if "unusable" in document else {},
        boot_id=field_of(document, "boot_id", str) if "boot_id" in document else "",
    )


def _reasons(document: Mapping[str, Any], name: str) -> dict[str, str]:
    reasons = field_of(document, name, dict)
    return {relative_path(entry): field_of(reasons, entry, str) for entry in reasons}


def _entry(document: Mapping[str, Any]) -> InstalledEntry:
    entry = relative_path(field_of(document, "entry", str))
    files = tuple(map(_file, field_of(document, "files", list)))
    below = f"{entry}/"
    for file in files:  # whoever removes by this receipt must not leave the entry
        if not file.path.startswith(below) and file.path != entry:
            raise ValueError(f"file '{shown(file.path)}' is not in the entry '{shown(entry)}'")
    return InstalledEntry(entry, files)


def _file(row: Any) -> InstalledFile:
    if not isinstance(row, list) or tuple(map(type, row[:-1])) != _FILE_TYPES:
        raise ValueError(
            f"{row!r:.200} does not describe a file: {', '.join(InstalledFile._fields)}"
        )
    file = InstalledFile._make((*row[:-1], _arrived(row[-1])))
    relative_path(file.path)
    if file.size < 0 or not 0 <= file.mode <= 0o777 or not _CHECKSUM.fullmatch(file.checksum):
        raise ValueError(f"file '{shown(file.path)}' has an impossible size, mode or checksum")
    return file


def _arrived(value: Any) -> tuple[int, str] | None:
    if value is None:
        return None
    match value:
        case [int() as size, str() as checksum] if _CHECKSUM.fullmatch(checksum):
            return size, checksum
    raise ValueError("'arrived' is not a size and a checksum")
