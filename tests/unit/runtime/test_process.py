"""A claimed process takes as many open files as it may have."""

from __future__ import annotations

import resource

import pytest

from mx_artifacts.runtime import process
from mx_artifacts.runtime.process import MAX_OPEN_FILES, claim_process

UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "taken"),
    [
        (1024, 4096, 4096),
        (1024, UNLIMITED, MAX_OPEN_FILES),
        (1024, 1 << 20, MAX_OPEN_FILES),
        (4096, 4096, None),
        (1 << 20, 1 << 20, None),
        (UNLIMITED, UNLIMITED, None),
    ],
)
def test_the_limit_of_open_files_is_raised_to_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, taken: int | None
) -> None:
    monkeypatch.setattr(process, "_claimed", False)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))
    claim_process()
    assert set_to == ([] if taken is None else [(taken, hard)])
    assert process.is_claimed()


def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(process, "_claimed", False)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    claim_process()
    assert process.is_claimed()
