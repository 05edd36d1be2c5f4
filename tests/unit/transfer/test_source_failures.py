"""The error of a transfer that no source ends keeps type, cause and traceback of the source's."""

from __future__ import annotations

from mx_artifacts.errors import ManifestInvalidError, PeerLostError, TransferFailedError
from mx_artifacts.observability.catalogue import SourceFailed
from mx_artifacts.observability.events import Event
from mx_artifacts.transfer.base import SourceAddress
from mx_artifacts.transfer.source_failures import SourceFailures

A, B = SourceAddress("a:1", "id"), SourceAddress("b:1", "id")


def failures() -> tuple[SourceFailures, list[Event]]:
    events: list[Event] = []
    return SourceFailures(events.append), events


def test_one_source_s_own_error_is_raised_with_its_endpoint_and_the_progress() -> None:
    found, _ = failures()
    error = PeerLostError("the agent went away", hint="look there", is_silent=True)
    found.add(A, error)
    told = found.as_error("3 of 5 parts")
    assert type(told) is PeerLostError
    assert str(told) == "source a:1: the agent went away (3 of 5 parts)"
    assert told.__cause__ is error
    assert (told.hint(), told.is_silent) == ("look there", True)


def test_an_error_that_needs_nothing_added_stays_the_same_object() -> None:
    found, _ = failures()
    error = ManifestInvalidError("forged")
    found.add(A, error)
    assert found.as_error("3 of 5 parts") is error
    found, _ = failures()
    lost = PeerLostError("source a:1 is gone")
    found.add(A, lost)
    assert found.as_error() is lost


def test_of_several_sources_each_cause_is_listed() -> None:
    found, _ = failures()
    causes = {"a:1": PeerLostError("gone"), "b:1": ManifestInvalidError("forged")}
    for address in (A, B):
        found.add(address, causes[address.endpoint])
    told = found.as_error()
    assert isinstance(told, TransferFailedError)
    assert dict(told.attempts) == causes
    assert "a:1: gone; b:1: forged" in str(told)


def test_no_source_at_all_is_said_too() -> None:
    found, _ = failures()
    assert "no source has the missing parts (0 of 1 parts)" in str(found.as_error("0 of 1 parts"))


def test_a_failure_is_emitted_once_and_forgotten_when_the_source_recovers() -> None:
    found, events = failures()
    first, second = PeerLostError("gone"), PeerLostError("still gone")
    found.add(A, first)
    found.add(A, second)
    assert events == [SourceFailed("a:1", first)]
    found.forget([A])
    assert found.by_endpoint == {}
