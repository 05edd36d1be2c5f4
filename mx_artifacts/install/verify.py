"""Is what was installed still there as it was?"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from mx_artifacts.filesystem.space import os_errors_translated
from mx_artifacts.install.receipts.believed import check_roots
from mx_artifacts.install.receipts.lookup import claims, newer_than, receipts_beside
from mx_artifacts.install.receipts.receipt import Receipt, load_receipt
from mx_artifacts.install.state.contents import VerifyReport, verify_receipt


@dataclass(frozen=True)
class InstallVerification:
    """A receipt, and what became of each entry that belongs to it."""

    receipt_path: Path
    receipt: Receipt
    report: VerifyReport


def verify_install(
    receipt_path: str | Path, *, roots: Collection[Path] = ()
) -> InstallVerification:
    """Compare what was installed with its receipt, byte for byte. Changes nothing.

    Entries that a later install put into the same root belong to that one, and are passed over.
    `roots`: as those of `uninstall_artifact`.

    Raises:
        InstallError: the receipt, or a file that it lists, cannot be read.
        ConfigurationError: the receipt names a root that is not believed.
    """
    path = Path(os.path.realpath(receipt_path))
    receipt = load_receipt(path)
    with os_errors_translated("verify what was installed"):
        check_roots(path, receipt, roots)
        newer = newer_than(receipts_beside(path), path)
        superseded = {
            (root.root, entry) for root in receipt.roots for entry in claims(newer, root.root)
        }
        return InstallVerification(path, receipt, verify_receipt(receipt, except_for=superseded))
