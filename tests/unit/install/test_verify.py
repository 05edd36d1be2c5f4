"""An install is verified by its receipt, but for what later installs put there."""

from __future__ import annotations

from pathlib import Path

import pytest

from mx_artifacts.bundle.rules import first_parts
from mx_artifacts.errors import ConfigurationError, InstallError
from mx_artifacts.install.base import RootInstall
from mx_artifacts.install.verify import InstallVerification, verify_install
from tests.support.install_cases import NEW, install, install_roots, make_bundle


def states(verified: InstallVerification) -> list[dict[str, str]]:
    return [{entry.entry: entry.state for entry in root.entries} for root in verified.report.roots]


def test_entries_of_a_later_install_into_one_root_are_passed_over_there_alone(
    tmp_path: Path,
) -> None:
    bundle = make_bundle(tmp_path / "a.tar", NEW)
    first, second = tmp_path / "first", tmp_path / "second"
    rules = first_parts(1)
    receipt = install_roots(
        [(RootInstall("", first, rules), bundle), (RootInstall("more", second, rules), bundle)]
    ).receipt_path
    assert verify_install(receipt).report.is_intact
    (second / "k1/kernel.so").write_bytes(b"other")
    install(first, make_bundle(tmp_path / "b.tar", {"k1/kernel.so": b"later"}), replace=True)
    verified = verify_install(receipt)
    assert states(verified) == [
        {"k2": "intact", "k3": "intact"},
        {"k1": "changed", "k2": "intact", "k3": "intact"},
    ]
    assert verified.receipt_path == receipt
    assert not verified.report.is_intact


def test_a_receipt_that_was_copied_is_believed_of_roots_that_the_caller_names(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    receipt = install(root, make_bundle(tmp_path / "a.tar", NEW)).receipt_path
    copied = tmp_path / "copied.json"
    copied.write_bytes(receipt.read_bytes())
    with pytest.raises(ConfigurationError, match=str(root)):
        verify_install(copied)
    assert verify_install(copied, roots=[root]).report.is_intact


def test_verifying_a_file_that_is_no_receipt_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InstallError):
        verify_install(tmp_path / "absent.json")
