"""The exception tree's page, and what every error promises."""

from __future__ import annotations

import re

import pytest

from mx_artifacts import errors


def _tree(kind: type[errors.MxArtifactsError]) -> set[str]:
    """Return the names of the library's classes; the command line adds outcomes of its own."""
    below = (sub for sub in kind.__subclasses__() if sub.__module__ == errors.__name__)
    return {kind.__name__}.union(*map(_tree, below))


_WITHOUT_OWN_HINT = {
    "MxArtifactsError",  # where it is raised itself, its hint is given
    "TransferFailedError",  # tells that of its cause
}


def test_the_module_page_lists_every_class() -> None:
    listed = set(re.findall(r"\b[A-Z]\w*Error\b", errors.__doc__ or ""))
    assert listed == _tree(errors.MxArtifactsError)


def test_hint_defaults_to_the_class_and_can_be_replaced() -> None:
    assert "publish" in errors.NoSourceError("x").hint()
    assert errors.NoSourceError("x", hint="do y").hint() == "do y"


@pytest.mark.parametrize("name", sorted(_tree(errors.MxArtifactsError)))
def test_every_error_has_a_next_step(name: str) -> None:
    if name in _WITHOUT_OWN_HINT:
        return
    assert getattr(errors, name)("x").hint()


def test_a_failed_transfer_has_the_hint_of_its_last_cause() -> None:
    lost, busy = errors.PeerLostError("gone"), errors.ChunkChecksumError("bad")
    error = errors.TransferFailedError("all failed", attempts=[("a:1", lost), ("b:2", busy)])
    assert error.exit_code is errors.ExitCode.INTEGRITY
    assert error.retryable
    assert error.hint() == busy.hint()
