"""The compiled part is used only where it is what these sources call."""

from __future__ import annotations

import mmap
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import crc32c
import pytest

from mx_artifacts.bulk import library
from mx_artifacts.bulk.library import bytes_of, column_of
from tests.support.compiled import done

SOURCE = Path(library.__file__).with_name("bulk.c")


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Let the library be looked for in each test, and again after the last one."""
    functions = (library.library, library.absence, library._load)
    for function in functions:
        function.cache_clear()
    yield
    for function in functions:
        function.cache_clear()


def why_not(monkeypatch: pytest.MonkeyPatch, place: Path) -> str:
    monkeypatch.setattr(library, "_place", lambda: place)
    missing = library.absence()
    assert missing is not None
    assert library.library() is None
    assert missing.next_step.startswith("install again")
    return missing.why


def test_a_missing_library_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert why_not(monkeypatch, tmp_path / "none.so") == "it was not built"


def test_a_file_that_is_no_library_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "text.so").write_text("text")
    assert why_not(monkeypatch, tmp_path / "text.so").startswith("it cannot be loaded (")


def test_a_library_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Path(crc32c.__file__).parent
    (place,) = other.glob("*.so")
    assert "bulk_" in why_not(monkeypatch, place)


def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with done("compiled"):
        place = library._place()
    monkeypatch.setattr(library, "VERSION", 99)
    for function in (library.library, library.absence):
        function.cache_clear()
    assert why_not(monkeypatch, place) == f"it is of version {_version()}, not 99"


def test_a_processor_that_cannot_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_place", lambda: SOURCE)
    monkeypatch.setattr(library, "_load", lambda: SimpleNamespace(bulk_version=lambda: 0))
    missing = library.absence()
    assert missing is not None
    assert "no instruction" in missing.why
    assert missing.next_step == ""
    monkeypatch.undo()


def test_both_sources_are_of_one_version() -> None:
    assert _version() == library.VERSION


def _version() -> int:
    (version,) = re.findall(r"^#define VERSION (\d+) ", SOURCE.read_text(), re.MULTILINE)
    return int(version)


def test_memory_stays_while_it_is_lent() -> None:
    memory = mmap.mmap(-1, 100)
    lent = bytes_of(memoryview(memory)[10:20])
    with pytest.raises(BufferError):
        memory.close()
    del lent
    memory.close()
    numbers = array("q", [1])
    lent = column_of(numbers, 1)
    with pytest.raises(BufferError):
        numbers.append(2)
    del lent
    numbers.append(2)
    for wrong in (array("q"), array("i", [1])):
        with pytest.raises(ValueError, match="a column of 1"):
            column_of(wrong, 1)
    assert bytes_of(memoryview(b"")) is None
