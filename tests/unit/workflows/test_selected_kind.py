"""Where the roots of a selected kind are, and which kinds are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from mx_artifacts.core.identity import BackendFramework
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.kinds.registry import all_kinds, get_kind
from mx_artifacts.workflows.selected_kind import SelectedKind, present_kinds


def test_a_stated_root_wins_over_where_the_engine_looks() -> None:
    env = {"TRITON_CACHE_DIR": "/engine", "HOME": "/home"}
    kind = get_kind("triton")
    assert SelectedKind(kind).roots(env) == {"": Path("/engine")}
    assert SelectedKind(kind).locate(kind.roots[0], env)[1] == "TRITON_CACHE_DIR"
    stated = SelectedKind(kind, {"": Path("/stated")})
    assert stated.primary_root(env) == Path("/stated")
    assert stated.locate(kind.roots[0], env) == (Path("/stated"), "--root")


def test_the_engine_that_is_named_decides_the_roots_and_is_in_the_identity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mx_artifacts.probes.engines.is_installed", lambda name: name == "vllm")
    kind = get_kind("inductor")
    env = {"HOME": "/home", "TORCHINDUCTOR_CACHE_DIR": "/inductor"}
    installed, none = SelectedKind(kind), SelectedKind(kind, engine=BackendFramework.UNKNOWN)
    assert installed.engine_in_use is BackendFramework.VLLM
    assert installed.primary_root(env) == Path("/home/.cache/vllm/torch_compile_cache")
    assert none.primary_root(env) == Path("/inductor")

    taken = []
    monkeypatch.setattr(
        "mx_artifacts.identity.identify.probe_identity",
        lambda kind, **given: taken.append(given["overrides"]),
    )
    SelectedKind(kind, engine=BackendFramework.SGLANG).probe("m", overrides={"dtype": "bf16"})
    SelectedKind(kind, engine=BackendFramework.SGLANG).probe(
        "m", overrides={"Backend_Framework": "sglang"}
    )
    installed.probe("m")
    assert taken == [
        {"dtype": "bf16", "backend_framework": "sglang"},
        {"Backend_Framework": "sglang"},
        {},
    ]


def test_a_root_that_is_on_only_where_it_is_stated_is_off_elsewhere() -> None:
    kind = next(k for k in all_kinds() if any(rule.required_identity for rule in k.roots))
    rule = next(rule for rule in kind.roots if rule.required_identity)
    assert SelectedKind(kind).is_off(rule)
    assert not SelectedKind(kind, {rule.name: Path("/stated")}).is_off(rule)
    assert not SelectedKind(kind).is_off(kind.roots[0])


def test_each_root_is_packed_by_the_kinds_rules(tmp_path: Path) -> None:
    kind = get_kind("triton")
    selected = SelectedKind(kind, {"": tmp_path})
    assert selected.roots_to_pack() == [(tmp_path, kind.pack)]


def test_a_kind_is_present_when_its_primary_root_has_entries(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/entry").touch()
    (tmp_path / "empty").mkdir()
    full, empty, absent = (
        SelectedKind(get_kind(name), {"": tmp_path / place})
        for name, place in (("triton", "full"), ("tilelang", "empty"), ("cute_dsl", "absent"))
    )
    assert present_kinds([full, empty, absent]) == (full,)


def test_a_root_with_an_unknown_path_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="no default root"):
        SelectedKind(get_kind("generic")).roots({})
