"""Receipts of installed kinds, and installs that were killed before their receipt."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mx_artifacts.errors import ConfigurationError
from mx_artifacts.install.receipts.lookup import FoundReceipt, find_receipts
from mx_artifacts.install.recover import take_back_unfinished, unfinished_install
from mx_artifacts.probes.engines import ENGINE_NAMES
from mx_artifacts.workflows.selected_kind import SelectedKind


def receipts_of_kind(selected: SelectedKind) -> tuple[FoundReceipt, ...]:
    """Return the receipts in the kind's primary root, newest first. Changes nothing.

    Raises:
        ConfigurationError: nothing says where that root is.
    """
    found = find_receipts(selected.primary_root())
    return tuple(each for each in found if each.receipt.artifact.kind == selected.name)


def receipts_of_artifact(selected: SelectedKind, artifact_id: str) -> tuple[FoundReceipt, ...]:
    """Return the receipts of an artifact in the kind's primary root of any engine.

    Changes nothing.

    Raises:
        ConfigurationError: the path of that root is unknown for every engine.
    """
    found: dict[Path, FoundReceipt] = {}
    nowhere: list[ConfigurationError] = []
    for engine in ENGINE_NAMES:
        try:
            of_engine = receipts_of_kind(dataclasses.replace(selected, engine=engine))
        except ConfigurationError as error:
            nowhere.append(error)
            continue
        of_artifact = (r for r in of_engine if r.receipt.artifact.artifact_id == artifact_id)
        found |= {each.path: each for each in of_artifact}
    if len(nowhere) == len(ENGINE_NAMES):
        raise nowhere[0]
    return tuple(found.values())


def believed_roots(selected: Iterable[SelectedKind]) -> tuple[Path, ...]:
    """Return all roots of the kinds: a receipt is believed of those, since the caller names them.

    They are the `roots` of `verify_install`, `usage_of` and `uninstall_artifact`. Kinds for which
    nothing says where their roots are, are passed over.
    """
    found: list[Path] = []
    for each in selected:
        with suppress(ConfigurationError):
            found += each.roots().values()
    return tuple(found)


def interrupted_install(selected: SelectedKind) -> Path | None:
    """Return the journal of an install into the kind's primary root that has no receipt, or None.

    It was killed, or is going on. Changes nothing.

    Raises:
        ConfigurationError: nothing says where that root is.
        RollbackFailedError: the journal is damaged.
        OSError: the journal cannot be read.
    """
    return unfinished_install(selected.primary_root())


def take_back_interrupted(
    selected: Iterable[SelectedKind], *, lock_timeout_seconds: float
) -> list[Path]:
    """Take back installs into the kinds' roots that were killed; return those roots.

    Kinds for which nothing says where their roots are, are passed over.

    Raises:
        InstallLockedError, RollbackFailedError, InstallError: as `take_back_unfinished`.
    """
    taken_back: list[Path] = []
    for each in selected:
        try:
            roots = each.roots().values()
        except ConfigurationError:
            continue
        taken_back += take_back_unfinished(roots, lock_timeout_seconds=lock_timeout_seconds)
    return taken_back
