"""Errors of ours as statuses; anything else is a bug and is not dressed up."""

from __future__ import annotations

import asyncio
from typing import NoReturn, cast

import grpc
import pytest

from mx_artifacts.errors import BackendUnavailableError, ConfigurationError, ConflictError
from mx_artifacts.server.answers import errors_as_status


class Aborted(Exception):
    """As gRPC's own: `abort` raises."""


class Call:
    def __init__(self) -> None:
        self.answers: list[tuple[grpc.StatusCode, str]] = []

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        self.answers.append((code, details))
        raise Aborted


class Service:
    @errors_as_status
    async def Answer(self, request: Exception | str) -> str:
        """Return `request`, or raise it."""
        if isinstance(request, Exception):
            raise request
        return request


def ask(request: Exception | str) -> tuple[str, list[tuple[grpc.StatusCode, str]]]:
    call = Call()
    context = cast(grpc.aio.ServicerContext, call)
    try:
        return asyncio.run(Service().Answer(request, context)), call.answers  # type: ignore[arg-type]
    except Aborted:
        return "", call.answers


def test_an_answer_is_passed_on() -> None:
    assert ask("well") == ("well", [])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (
            BackendUnavailableError("no database", hint="start one"),
            (grpc.StatusCode.UNAVAILABLE, "no database; start one"),
        ),
        (
            ConfigurationError("no such size", hint=""),
            (grpc.StatusCode.INVALID_ARGUMENT, "no such size"),
        ),
        (ConflictError("taken"), (grpc.StatusCode.ABORTED, "taken")),
    ],
)
def test_an_error_of_ours_is_a_status_with_its_hint(
    error: Exception, status: tuple[grpc.StatusCode, str]
) -> None:
    answer, statuses = ask(error)
    assert answer == ""
    ((code, details),) = statuses
    assert code is status[0]
    assert details.startswith(status[1])


def test_a_bug_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        ask(ZeroDivisionError())


def test_a_handler_keeps_its_name_for_gRPC_and_for_messages() -> None:
    assert Service.Answer.__name__ == "Answer"
