"""An install that asks others: when it asks, and that a refusal leaves the roots as they were."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mx_artifacts.bundle.rules import first_parts
from mx_artifacts.install.base import RootInstall, RootReport
from tests.support.install_cases import (
    NEW,
    OLD,
    ORIGIN,
    contents,
    fill,
    install,
    install_roots,
    leftovers,
    make_bundle,
    picture,
    workspace_of,
)


class RefusedError(Exception):
    """What the others say."""


class Asked:
    """Notes what the root looks like when it is asked, and refuses where the test wants it."""

    def __init__(self, root: Path, refuse: str = "") -> None:
        self._root = root
        self._refuse = refuse
        self.seen: list[dict[str, bytes]] = []
        self.artifact_id = ""
        self.reports: Sequence[RootReport] = ()

    def _ask(self, what: str) -> None:
        self.seen.append(contents(self._root))
        if what == self._refuse:
            raise RefusedError

    def before_commit(self, artifact_id: str) -> None:
        self.artifact_id = artifact_id
        self._ask("commit")

    def before_receipt(self, roots: Sequence[RootReport]) -> None:
        self.reports = roots
        self._ask("receipt")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "artifact.tar", NEW)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def receipts(root: Path) -> list[Path]:
    return list((workspace_of(root) / "receipts").glob("*.json"))


def test_it_is_asked_before_the_first_move_and_after_the_last(root: Path, bundle: Path) -> None:
    asked = Asked(root)
    report = install(root, bundle, agreement=asked)
    assert asked.seen == [{}, NEW]
    assert asked.artifact_id == ORIGIN.artifact_id
    assert tuple(asked.reports) == report.roots
    assert len(receipts(root)) == 1


@pytest.mark.parametrize("refuse", ["commit", "receipt"])
@pytest.mark.parametrize(
    ("before", "replace"), [(None, False), ({}, False), (OLD, False), (OLD, True)]
)
def test_a_refusal_leaves_the_root_as_it_was(
    root: Path, bundle: Path, before: dict[str, bytes] | None, replace: bool, refuse: str
) -> None:
    if before is not None:
        fill(root, before)
    found = picture(root)
    asked = Asked(root, refuse)
    with pytest.raises(RefusedError):
        install(root, bundle, agreement=asked, replace=replace)
    assert len(asked.seen) == (1 if refuse == "commit" else 2)
    assert picture(root) == found
    assert not workspace_of(root).exists()
    install(root, bundle, replace=replace)
    assert leftovers(root) == []


def test_an_artifact_that_is_already_installed_needs_agreement_too(
    root: Path, bundle: Path
) -> None:
    first = install(root, bundle)
    asked = Asked(root)
    assert install(root, bundle, agreement=asked).receipt_path == first.receipt_path
    assert asked.seen == [NEW, NEW]
    with pytest.raises(RefusedError):
        install(root, bundle, agreement=Asked(root, "receipt"))
    assert contents(root) == NEW
    assert receipts(root) == [first.receipt_path]


def test_all_roots_of_an_artifact_are_taken_back(tmp_path: Path, bundle: Path) -> None:
    roots = [
        (RootInstall(name, tmp_path / name, first_parts(1)), bundle)
        for name in ("flashinfer", "autotune")
    ]
    fill(tmp_path / "autotune", OLD)
    asked = Asked(tmp_path / "flashinfer", "receipt")
    with pytest.raises(RefusedError):
        install_roots(roots, artifact=ORIGIN, lock_timeout_seconds=5, agreement=asked)
    assert asked.seen == [{}, NEW]
    assert [report.name for report in asked.reports] == ["flashinfer", "autotune"]
    assert not (tmp_path / "flashinfer").exists()
    assert contents(tmp_path / "autotune") == OLD
