"""Kinds of third parties, and the generic kind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

import pytest

from mx_artifacts.core.compatibility import same_kind
from mx_artifacts.core.identity import (
    BackendFramework,
    SourceIdentity,
    SourceType,
    compute_mx_source_id,
)
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.identity.identify import Profile, probe_identity
from mx_artifacts.kinds import generic, registry
from mx_artifacts.kinds.registry import all_kinds, get_kind, kind_name_of, kind_of
from mx_artifacts.kinds.triton import kind as triton

THEIRS = replace(generic.KIND, name="aiter", title="AITER kernels")


@dataclass(frozen=True)
class EntryPoint:
    """An entry point of an installed package, as importlib.metadata gives it."""

    name: str
    load: Callable[[], Any]
    value: str = "their_package:KIND"


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    def entry_points(*points: EntryPoint) -> None:
        registry._third_party_kinds.cache_clear()
        monkeypatch.setattr(metadata, "entry_points", lambda *, group: points)

    yield entry_points
    registry._third_party_kinds.cache_clear()


def test_a_third_partys_kind_is_found(install: Callable[..., None]) -> None:
    install(EntryPoint("aiter", lambda: THEIRS))
    assert all_kinds()[-1] is get_kind("AITER") is THEIRS
    assert kind_of(THEIRS.source_type).name == "inductor"  # the number stays its owner's
    with pytest.raises(ConfigurationError) as raised:
        get_kind("none")
    assert raised.value.hint().endswith("aiter, generic")


def broken() -> None:
    raise ImportError("no module named their_package")


@pytest.mark.parametrize(
    ("load", "objection"),
    [
        (broken, "no module named their_package"),
        (lambda: "aiter", "it is a str"),
        (lambda: replace(THEIRS, name="triton"), "the name triton is taken"),
        (lambda: replace(THEIRS, name="all"), "the name all is taken"),
        (lambda: replace(THEIRS, name="generic"), "the name generic is taken"),
        (lambda: replace(THEIRS, name="My Kind"), "should be lower-case"),
        (lambda: replace(triton.KIND, name="aiter"), "shares_source_type"),
        (lambda: replace(THEIRS, roots=()), "no primary root"),
    ],
)
def test_a_kind_that_cannot_be_used_is_named_and_left_out(
    install: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    load: Callable[[], Any],
    objection: str,
) -> None:
    built_in = all_kinds()
    install(EntryPoint("theirs", load))
    with caplog.at_level(logging.WARNING):
        assert all_kinds() == built_in
        assert all_kinds() == built_in
    (record,) = caplog.records
    assert "cache kind theirs (their_package:KIND) is left out" in record.getMessage()
    assert objection in record.getMessage()


def test_the_second_of_two_with_one_name_is_left_out(
    install: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    other = replace(THEIRS, title="other")
    install(EntryPoint("b", lambda: other), EntryPoint("a", lambda: THEIRS))
    assert get_kind("aiter") is THEIRS
    assert "the name aiter is taken" in caplog.text


def test_no_foreign_code_runs_for_a_built_in_kind(install: Callable[..., None]) -> None:
    install(EntryPoint("theirs", broken))
    assert get_kind("triton") is triton.KIND
    assert registry._third_party_kinds.cache_info().currsize == 0


# --- kinds without a number of their own ----------------------------------------------------------


def identity_of(name: str, **stated: str) -> SourceIdentity:
    return probe_identity(get_kind(name), model_name="m", overrides=stated, env={}).identity


def test_a_generic_cache_says_that_it_is_one() -> None:
    identity = identity_of("generic", mine="1")
    assert identity.mx_source_type is SourceType.TORCH_COMPILE_CACHE
    assert identity.extra_parameters.keys() == {"machine", "mine", "mx_kind"}
    assert identity.extra_parameters["mx_kind"] == "generic"
    assert kind_name_of(identity) == "generic"
    assert compute_mx_source_id(identity) != compute_mx_source_id(identity_of("generic", mine="2"))


def test_kinds_that_share_a_number_never_match(install: Callable[..., None]) -> None:
    install(EntryPoint("aiter", lambda: THEIRS))
    theirs, generic_one = identity_of("aiter"), identity_of("generic")
    assert compute_mx_source_id(theirs) != compute_mx_source_id(generic_one)
    assert not same_kind(theirs, generic_one)
    assert same_kind(theirs, identity_of("aiter", mine="1"))


def test_the_kinds_parameter_is_not_the_users() -> None:
    with pytest.raises(ConfigurationError, match="mx_kind"):
        identity_of("generic", mx_kind="inductor")


def test_the_reference_has_no_such_kind() -> None:
    with pytest.raises(ConfigurationError, match="has no cache kind generic"):
        probe_identity(get_kind("generic"), model_name="m", env={}, profile=Profile.REFERENCE)


def test_a_generic_cache_has_no_usual_place() -> None:
    with pytest.raises(ConfigurationError, match="no default root"):
        get_kind("generic").roots[0].locate({"HOME": "/h"}, BackendFramework.UNKNOWN)
    assert generic.KIND not in all_kinds()  # `--kind all` cannot mean it
