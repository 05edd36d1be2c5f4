"""Memory for bundles within a limit, and files beyond it; what was lent comes back once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mx_artifacts.errors import RegistrationError
from mx_artifacts.memory.budget import BundleBudget
from mx_artifacts.memory.buffers import Buffer, Bundle, FileBuffer


class Lender:
    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.budget = BundleBudget(100, directory)
        self._stack = stack

    def lend(self, length: int) -> Bundle:
        bundle = self.budget.allocate(length)
        self._stack.callback(bundle.close)
        return bundle

    def is_in_memory(self, length: int) -> bool:
        """Return whether so many bytes more would be lent in memory."""
        bundle = self.budget.allocate(length)
        bundle.close()
        return isinstance(bundle, Buffer)


@pytest.fixture
def lender(tmp_path: Path) -> Iterator[Lender]:
    with ExitStack() as stack:
        yield Lender(tmp_path / "bundles", stack)


def test_memory_is_lent_up_to_the_limit_and_files_beyond(lender: Lender, tmp_path: Path) -> None:
    assert isinstance(lender.lend(60), Buffer)
    assert not (tmp_path / "bundles").exists()
    assert isinstance(lender.lend(41), FileBuffer)
    assert isinstance(lender.lend(40), Buffer), "a file takes nothing of it"
    assert isinstance(lender.lend(1), FileBuffer)


def test_memory_is_returned_once_when_a_buffer_is_closed_twice(lender: Lender) -> None:
    first = lender.lend(60)
    lender.lend(40)
    first.close()
    first.close()
    assert lender.is_in_memory(60)
    assert not lender.is_in_memory(61)


def test_a_buffer_that_was_cut_returns_all_its_memory(lender: Lender) -> None:
    buffer = lender.lend(100)
    buffer.cut(1)
    assert not lender.is_in_memory(1), "its pages are still there"
    buffer.close()
    assert lender.is_in_memory(100)


def test_memory_that_the_machine_does_not_have_is_not_counted(
    lender: Lender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise RegistrationError("no memory")

    with monkeypatch.context() as patches:
        patches.setattr(Buffer, "__init__", refuse)
        with pytest.raises(RegistrationError):
            lender.budget.allocate(100)
    assert lender.is_in_memory(100)


def test_a_budget_of_nothing_lends_files_only(tmp_path: Path) -> None:
    bundle = BundleBudget(0, tmp_path).allocate(1)
    assert isinstance(bundle, FileBuffer)
    bundle.close()
