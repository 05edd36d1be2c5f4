"""Several kinds are published together."""

from __future__ import annotations

from typing import cast

from mx_artifacts.errors import BundleError
from mx_artifacts.identity.identify import ProbedIdentity
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.observability.catalogue import IdentityUnchecked, KindFailed, SealStarted
from mx_artifacts.observability.events import Event
from mx_artifacts.publisher import ArtifactPublisher
from mx_artifacts.workflows.publish_kinds import PublishKindsRequest, publish_kinds
from mx_artifacts.workflows.selected_kind import SelectedKind
from tests.support.workflow_fakes import FakePublisher, probed

TRITON, INDUCTOR = (SelectedKind(get_kind(name)) for name in ("triton", "inductor"))


def both_profiles(selected: SelectedKind) -> list[ProbedIdentity]:
    return [probed(selected), probed(selected, unchecked=("dtype",))]


def test_each_kind_is_announced_under_all_its_identities_and_a_failure_stops_no_other() -> None:
    broken, events, told = BundleError("broken"), list[Event](), list[str]()
    fake = FakePublisher({"triton": broken})
    published = publish_kinds(
        cast(ArtifactPublisher, fake),
        PublishKindsRequest((TRITON, INDUCTOR), both_profiles),
        on_published=lambda each: told.append(each.selected.name),
        events=events.append,
    )
    assert fake.calls == [("triton", "cuda", 1), ("inductor", "cuda", 1)]
    assert dict(published.failed) == {"triton": broken}
    assert list(published.done) == told == ["inductor"]
    assert published.done["inductor"].before is None
    assert events == [
        IdentityUnchecked("triton", ("dtype",)),
        SealStarted("triton"),
        KindFailed("triton", broken),
        IdentityUnchecked("inductor", ("dtype",)),
        SealStarted("inductor"),
    ]


def test_a_stated_accelerator_wins() -> None:
    fake = FakePublisher()
    request = PublishKindsRequest((TRITON,), lambda each: [probed(each)], accelerator="rocm")
    publish_kinds(cast(ArtifactPublisher, fake), request)
    assert fake.calls == [("triton", "rocm", 0)]
