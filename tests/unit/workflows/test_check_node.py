"""Which checks a node goes through."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mx_artifacts.doctor import network, tools
from mx_artifacts.doctor.base import Check, Level
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.workflows.check_node import check_node
from mx_artifacts.workflows.selected_kind import SelectedKind


@pytest.fixture(autouse=True)
def _no_programs_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MX_TRANSPORT", "MX_METADATA_BACKEND", "REDIS_URL", "MX_REDIS_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tools, "run_program", lambda *_, **__: "")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)

    def told(name: str) -> object:
        return lambda what, *_, **__: Check(name, Level.OK, str(what))

    monkeypatch.setattr(network, "check_nixl", told("nixl"))
    monkeypatch.setattr(network, "check_backend", told("metadata backend"))
    monkeypatch.setattr(network, "check_server", told("central server"))


def checked(root: Path, *, tools_required: bool = True) -> dict[str, Check]:
    selected = [SelectedKind(get_kind("flashinfer"), {"": root / "f", "autotune": root / "a"})]
    found = check_node(selected, "central:1", tools_required=tools_required, timeout_seconds=1.0)
    return {each.name: each for each in found}


def test_each_root_and_the_server_are_looked_at(tmp_path: Path) -> None:
    found = checked(tmp_path)
    assert {"flashinfer root", "flashinfer autotune", "clock", "transport"} <= found.keys()
    assert found["flashinfer root"].what.startswith(f"{tmp_path}/f (stated)")
    assert found["central server"].what == "central:1"
    assert not {"nixl", "metadata backend"} & found.keys()


def test_components_that_settings_name_are_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_TRANSPORT", "nixl")
    monkeypatch.setenv("MX_METADATA_BACKEND", "redis")
    assert {"nixl", "metadata backend"} <= checked(tmp_path).keys()


def test_a_tool_that_is_missing_fails_where_its_kind_was_asked_for(tmp_path: Path) -> None:
    assert checked(tmp_path)["ninja"].level is Level.FAIL
    assert checked(tmp_path, tools_required=False)["ninja"].level is Level.WARN
