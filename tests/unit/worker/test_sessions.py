"""Which targets are attached: bounds, ids, and the transport that each reads by."""

from __future__ import annotations

import pytest

from mx_artifacts.errors import (
    ConfigurationError,
    LeaseExpiredError,
    NoFreeSlotError,
    TransportNotAllowedError,
)
from mx_artifacts.worker.sessions import Sessions, choose_transport

FIRST, SECOND, THIRD = "0" * 32, "1" * 32, "f" * 32


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(2, ("stream", "nixl"))


# --- the transport -------------------------------------------------------------------------------


def test_the_target_s_first_transport_that_is_offered_is_taken() -> None:
    assert choose_transport(["nixl", "stream"], ("stream", "nixl")) == "nixl"
    assert choose_transport(["rdma", "stream", "nixl"], ("nixl", "stream")) == "stream"
    assert choose_transport(iter(["stream"]), ("stream",)) == "stream"


@pytest.mark.parametrize("offered", [("nixl", "stream"), ("stream", "nixl"), ("inproc",)])
def test_a_target_that_states_no_transport_is_a_plain_one(offered: tuple[str, ...]) -> None:
    assert choose_transport([], offered) == ("nixl" if "nixl" in offered else "inproc")


def test_the_error_for_a_target_without_our_transports_names_them() -> None:
    with pytest.raises(TransportNotAllowedError, match="by stream, nixl only"):
        choose_transport(["rdma"], ("stream", "nixl"))


def test_the_error_for_a_plain_target_says_how_to_start_the_source() -> None:
    with pytest.raises(TransportNotAllowedError, match="MX_TRANSPORT=nixl"):
        choose_transport([], ("stream",))


# --- sessions ------------------------------------------------------------------------------------


def test_a_session_keeps_the_transport_that_it_was_opened_with(sessions: Sessions) -> None:
    assert sessions.open(FIRST, ["nixl"]) == "nixl"
    assert sessions.open(SECOND, ["stream", "nixl"]) == "stream"
    assert sessions.transport_of(FIRST) == "nixl"
    assert sessions.transport_of(SECOND, ["nixl"]) == "stream", "what it says later is not asked"


def test_a_plain_target_has_the_transport_that_it_states(sessions: Sessions) -> None:
    assert sessions.transport_of("", ["stream"]) == "stream"
    assert sessions.transport_of("") == "nixl"
    with pytest.raises(TransportNotAllowedError):
        sessions.transport_of("", ["rdma"])


@pytest.mark.parametrize(
    "session_id", ["", "0" * 31, "0" * 33, "A" * 32, "g" * 32, "0" * 32 + "\n", "0" * 31 + "٣"]
)
def test_an_unknown_source_id_is_refused(sessions: Sessions, session_id: str) -> None:
    with pytest.raises(ConfigurationError, match="32 lower-case hex"):
        sessions.open(session_id, [])
    assert len(sessions) == 0


def test_an_attached_session_cannot_be_taken_over(sessions: Sessions) -> None:
    sessions.open(FIRST, ["nixl"])
    with pytest.raises(ConfigurationError, match="already attached"):
        sessions.open(FIRST, ["stream"])
    assert (len(sessions), sessions.transport_of(FIRST)) == (1, "nixl")


def test_one_more_than_the_limit_is_busy_until_another_ends(sessions: Sessions) -> None:
    sessions.open(FIRST, [])
    sessions.open(SECOND, [])
    with pytest.raises(NoFreeSlotError, match="2 targets"):
        sessions.open(THIRD, [])
    assert len(sessions) == 2
    sessions.end(FIRST)
    sessions.open(THIRD, [])


def test_one_that_cannot_read_takes_no_place(sessions: Sessions) -> None:
    with pytest.raises(TransportNotAllowedError):
        sessions.open(FIRST, ["rdma"])
    assert len(sessions) == 0
    sessions.open(FIRST, ["stream"])


def test_a_session_that_ended_has_no_leases_any_more(sessions: Sessions) -> None:
    sessions.open(FIRST, [])
    sessions.check(FIRST)
    sessions.end(FIRST)
    sessions.end(FIRST)
    for ask in (sessions.check, sessions.transport_of):
        with pytest.raises(LeaseExpiredError, match=FIRST):
            ask(FIRST)
    sessions.check("")
