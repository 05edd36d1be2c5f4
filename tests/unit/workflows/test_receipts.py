"""Which receipts belong to a kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mx_artifacts.errors import ConfigurationError
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.workflows.receipts import (
    believed_roots,
    interrupted_install,
    receipts_of_artifact,
    receipts_of_kind,
    take_back_interrupted,
)
from mx_artifacts.workflows.selected_kind import SelectedKind
from tests.support.install_cases import NEW, ORIGIN, contents, install, make_bundle


def test_receipts_of_other_kinds_in_the_same_root_do_not_belong_to_it(tmp_path: Path) -> None:
    root, bundle = tmp_path / "root", make_bundle(tmp_path / "a.tar", NEW)
    first = install(root, bundle).receipt_path
    other = install(root, bundle, artifact=replace(ORIGIN, kind="tilelang"), replace=True)
    newest = install(root, bundle, replace=True).receipt_path
    found = receipts_of_kind(SelectedKind(get_kind("triton"), {"": root}))
    assert [each.path for each in found] == [newest, first]
    (of_other,) = receipts_of_kind(SelectedKind(get_kind("tilelang"), {"": root}))
    assert of_other.path == other.receipt_path


def test_an_artifact_is_found_in_the_roots_of_every_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("VLLM_CACHE_ROOT", raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "plain"))
    bundle = make_bundle(tmp_path / "a.tar", NEW)
    ours = replace(ORIGIN, kind="inductor")
    paths = {
        install(root, bundle, artifact=ours).receipt_path
        for root in (tmp_path / "plain", tmp_path / ".cache/vllm/torch_compile_cache")
    }
    install(tmp_path / "plain", bundle, artifact=replace(ours, artifact_id="f" * 64), replace=True)
    selected = SelectedKind(get_kind("inductor"))
    found = receipts_of_artifact(selected, ORIGIN.artifact_id)
    assert {each.path for each in found} == paths
    stated = SelectedKind(get_kind("inductor"), {"": tmp_path / "elsewhere"})
    assert receipts_of_artifact(stated, ORIGIN.artifact_id) == ()
    with pytest.raises(ConfigurationError):
        receipts_of_artifact(SelectedKind(get_kind("generic")), ORIGIN.artifact_id)


def test_receipts_are_believed_of_all_roots_of_kinds_that_say_where_they_are() -> None:
    triton = SelectedKind(get_kind("triton"), {"": Path("/triton")})
    nowhere = SelectedKind(get_kind("generic"))
    assert believed_roots([nowhere, triton]) == (Path("/triton"),)
    assert believed_roots([]) == ()


def test_nothing_is_interrupted_where_each_install_has_its_receipt(tmp_path: Path) -> None:
    root = tmp_path / "root"
    selected = SelectedKind(get_kind("triton"), {"": root})
    assert receipts_of_kind(selected) == ()
    install(root, make_bundle(tmp_path / "a.tar", NEW))
    assert interrupted_install(selected) is None
    assert take_back_interrupted([selected], lock_timeout_seconds=1.0) == []
    assert contents(root) == NEW


def test_a_kind_whose_root_nothing_names_is_passed_over_where_installs_are_taken_back() -> None:
    nowhere = SelectedKind(get_kind("generic"))
    with pytest.raises(ConfigurationError):
        receipts_of_kind(nowhere)
    assert take_back_interrupted([nowhere], lock_timeout_seconds=1.0) == []
