"""Decides for which roots a receipt counts; the owner of the receipt's root can have edited it."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from itertools import product
from pathlib import Path

from mx_artifacts.core.identity import BackendFramework
from mx_artifacts.errors import ConfigurationError, UnsafePathError
from mx_artifacts.filesystem.resolved_path import is_open_to_others
from mx_artifacts.install.receipts.receipt import Receipt, RootReceipt
from mx_artifacts.install.receipts.voucher import is_vouched_for
from mx_artifacts.install.workspace.opening import receipt_directories
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.node.environment import environment
from mx_artifacts.probes.engines import ENGINE_NAMES


def check_roots(receipt_path: Path, receipt: Receipt, stated: Collection[Path] = ()) -> None:
    """Refuse a receipt that names a root if nothing else confirms that it belongs to this root.

    A root is trusted if one of these is true. The receipt, or a voucher for it, is in the root's
    own workspace. Or the kind's engine uses this root on this node; but not if another user can
    have written the receipt and does not own the root. Or the caller has `stated` the root.

    Raises:
        ConfigurationError: names the root.
    """
    known = {os.path.realpath(path) for path in stated}
    for root in receipt.roots:
        is_kinds = _is_kinds(receipt, root) and _may_name(receipt_path, root)
        if root.root in known or is_kinds or _lies_with(receipt_path, root):
            continue
        name = f"{receipt.artifact.kind}/{root.name}" if root.name else receipt.artifact.kind
        raise ConfigurationError(
            f"{receipt_path} names the root {root.root}, but this root has no record of the "
            "receipt: the receipt may have been edited or copied",
            hint=f"if the cache was installed there, use `--kind {receipt.artifact.kind} --root "
            f"{name}={root.root}` in place of the receipt",
        )


def _is_kinds(receipt: Receipt, root: RootReceipt) -> bool:
    """Return whether any engine looks there: a receipt does not say for which it was installed."""
    try:
        rules = [rule for rule in get_kind(receipt.artifact.kind).roots if rule.name == root.name]
    except ConfigurationError:  # of a plug-in that is not here any more
        return False
    for rule, engine in product(rules, (BackendFramework.UNKNOWN, *ENGINE_NAMES)):
        with suppress(ConfigurationError):  # this engine looks nowhere
            if os.path.realpath(rule.locate(environment(), engine)[0]) == root.root:
                return True
    return False


def _may_name(receipt_path: Path, root: RootReceipt) -> bool:
    """Return whether only the root's owner, or a trusted user, can have written the receipt."""
    try:
        writers, owner = os.stat(receipt_path.parent), os.stat(root.root).st_uid
    except FileNotFoundError:
        return True  # nothing is there
    except OSError:
        return False
    return not is_open_to_others(writers) or writers.st_uid == owner


def _lies_with(receipt_path: Path, root: RootReceipt) -> bool:
    with suppress(UnsafePathError), receipt_directories(Path(root.root)) as directories:
        if any(directory.path == receipt_path.parent for directory in directories):
            return True
    return is_vouched_for(Path(root.root), receipt_path)
