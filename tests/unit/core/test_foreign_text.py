"""What others wrote is shown cut, and does nothing to a terminal."""

from __future__ import annotations

import pytest

from mx_artifacts.core.foreign_text import MAX_SHOWN_CHARACTERS, shown


@pytest.mark.parametrize(
    ("foreign", "expected"),
    [
        ("plain", "plain"),
        (b"bytes \xff", "bytes \\xff"),
        ("\x1b[2Jé\u202e\udcff", "\\x1b[2Jé\\u202e\\udcff"),
        ("x" * MAX_SHOWN_CHARACTERS, "x" * MAX_SHOWN_CHARACTERS),
    ],
)
def test_foreign_text_is_shown(foreign: str | bytes, expected: str) -> None:
    assert shown(foreign) == expected


@pytest.mark.parametrize("foreign", ["x" * 10_000, b"\xff" * 10_000_000, "\x1b" * 10_000_000])
def test_foreign_text_is_cut(foreign: str | bytes) -> None:
    assert len(shown(foreign)) == MAX_SHOWN_CHARACTERS
    assert shown(foreign).endswith("...")
