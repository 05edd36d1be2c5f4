"""Several kinds are fetched in one safe order, each as the request says."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from mx_artifacts.artifacts.target.group_member import GroupWanted
from mx_artifacts.artifacts.target.suitability import SourceWanted
from mx_artifacts.errors import (
    ConfigurationError,
    InstallError,
    NoSourceError,
    TransferFailedError,
)
from mx_artifacts.fetcher import ArtifactFetcher
from mx_artifacts.identity.identify import ProbedIdentity
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.observability.catalogue import (
    IdentityUnchecked,
    KindFailed,
    KindSkipped,
    RootUngrouped,
)
from mx_artifacts.observability.events import Event
from mx_artifacts.workflows.fetch_kinds import FetchKindsRequest, fetch_kinds, plan_kinds
from mx_artifacts.workflows.selected_kind import SelectedKind
from tests.support.workflow_fakes import FakeFetcher, probed

TRITON, INDUCTOR, CUTE = (SelectedKind(get_kind(n)) for n in ("triton", "inductor", "cute_dsl"))
ALL_THREE = (TRITON, INDUCTOR, CUTE)
SERVED = {each.name: f"{each.name}-artifact" for each in ALL_THREE}
GROUP = GroupWanted("g", 2, "me")


def as_fetcher(fake: FakeFetcher) -> ArtifactFetcher:
    return cast(ArtifactFetcher, fake)


def test_kinds_are_fetched_in_the_order_of_the_request_and_reported_one_by_one() -> None:
    fake, told = FakeFetcher({**SERVED}), []
    request = FetchKindsRequest(ALL_THREE, probed)
    fetched = fetch_kinds(
        as_fetcher(fake), request, on_fetched=lambda each: told.append((each, len(fake.fetched)))
    )
    assert list(fetched.done) == ["triton", "inductor", "cute_dsl"]
    assert [(each.selected, count) for each, count in told] == [
        (TRITON, 1),
        (INDUCTOR, 2),
        (CUTE, 3),
    ]
    assert fetched.done["triton"].result.source.artifact_id == "triton-artifact"


@pytest.mark.parametrize("given", [ALL_THREE, ALL_THREE[::-1]])
def test_members_of_a_group_take_kinds_in_one_order(given: tuple[SelectedKind, ...]) -> None:
    fake = FakeFetcher({**SERVED})
    fetch_kinds(as_fetcher(fake), FetchKindsRequest(given, probed, group=GROUP))
    assert [name for name, _ in fake.fetched] == ["cute_dsl", "inductor", "triton"]
    assert fake.groups == [GROUP] * 3


def test_a_group_cannot_agree_on_kinds_that_may_be_absent() -> None:
    with pytest.raises(ConfigurationError, match="cannot agree") as caught:
        FetchKindsRequest(ALL_THREE, probed, group=GROUP, skip_absent=True)
    assert "name the same kinds" in caught.value.hint()
    FetchKindsRequest(ALL_THREE, probed, group=GroupWanted("", 1, "me"), skip_absent=True)


def test_an_accelerator_that_is_not_stated_is_that_of_the_identity() -> None:
    fake = FakeFetcher({**SERVED})
    request = FetchKindsRequest((TRITON,), probed, SourceWanted(wait_seconds=5.0))
    fetch_kinds(as_fetcher(fake), request)
    stated = FetchKindsRequest((TRITON,), probed, SourceWanted(accelerator="rocm"))
    fetch_kinds(as_fetcher(fake), stated)
    assert fake.fetched == [
        ("triton", SourceWanted(accelerator="cuda", wait_seconds=5.0)),
        ("triton", SourceWanted(accelerator="rocm")),
    ]
    assert fake.waited == []


def test_kinds_that_may_be_absent_are_waited_for_together_and_skipped() -> None:
    broken = TransferFailedError("lost")
    fake, events = FakeFetcher({"triton": "artifact", "cute_dsl": broken}), list[Event]()
    unknown = ConfigurationError("not installed")
    tilelang = SelectedKind(get_kind("tilelang"))

    def identify(each: SelectedKind) -> ProbedIdentity:
        if each is tilelang:
            raise unknown
        return probed(each)

    request = FetchKindsRequest(
        (tilelang, *ALL_THREE), identify, SourceWanted(wait_seconds=60.0), skip_absent=True
    )
    fetched = fetch_kinds(as_fetcher(fake), request, events=events.append)
    assert fake.waited == [(3, 60.0)]
    assert {wanted.wait_seconds for _, wanted in fake.fetched} == {0.0}
    assert list(fetched.done) == ["triton"]
    assert dict(fetched.failed) == {"cute_dsl": broken}
    assert list(fetched.skipped) == ["tilelang", "inductor"]
    assert events == [
        KindSkipped("tilelang", unknown),
        KindSkipped("inductor", fetched.skipped["inductor"]),
        KindFailed("cute_dsl", broken),
    ]


def test_named_kinds_without_a_source_have_failed() -> None:
    fake = FakeFetcher({"triton": "artifact", "inductor": InstallError("no")})
    fetched = fetch_kinds(as_fetcher(fake), FetchKindsRequest(ALL_THREE, probed))
    assert list(fetched.failed) == ["inductor", "cute_dsl"]
    assert isinstance(fetched.failed["cute_dsl"], NoSourceError)
    assert list(fetched.done) == ["triton"]


@pytest.mark.parametrize("installed_already", [True, False])
def test_a_plan_says_what_the_roots_hold_where_something_would_be_fetched(
    installed_already: bool,
) -> None:
    fake = FakeFetcher({"triton": "artifact"}, installed_already=installed_already)
    planned = plan_kinds(as_fetcher(fake), FetchKindsRequest((TRITON,), probed))
    existing = planned.done["triton"].existing_entries
    assert existing == ({} if installed_already else {Path("/root"): 3})
    assert fake.fetched == []


def test_values_that_an_identity_does_not_check_are_reported() -> None:
    events: list[Event] = []
    request = FetchKindsRequest((TRITON,), lambda each: probed(each, unchecked=("dtype",)))
    fetch_kinds(as_fetcher(FakeFetcher({**SERVED})), request, events=events.append)
    assert events == [IdentityUnchecked("triton", ("dtype",))]


@pytest.mark.parametrize(
    ("group", "told"), [(None, True), (GROUP, False), (GroupWanted("", 1, "me"), False)]
)
def test_a_root_that_needs_a_group_and_has_none_is_reported(
    group: GroupWanted | None, told: bool
) -> None:
    events: list[Event] = []
    flashinfer = SelectedKind(get_kind("flashinfer"), {"autotune": Path("/autotune")})
    request = FetchKindsRequest((flashinfer,), probed, group=group)
    fetch_kinds(as_fetcher(FakeFetcher({"flashinfer": "a"})), request, events=events.append)
    assert events == ([RootUngrouped("flashinfer", "autotune")] if told else [])
