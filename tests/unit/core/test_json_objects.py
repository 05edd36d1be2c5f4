"""JSON of others: an object, or a ValueError that names it and says why."""

from __future__ import annotations

import pytest

from mx_artifacts.core.json_objects import parse_object


@pytest.mark.parametrize("text", [b'{"a": 1}', '{"a": 1}'])
def test_an_object(text: bytes | str) -> None:
    assert parse_object(text, "it") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "it is not JSON"),
        (b"{", "it is not JSON"),
        (b"[]", "it is not a JSON object"),
        (b"null", "it is not a JSON object"),
        (b"\xff\xfe", "it is not UTF-8"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", "integer string conversion"),
    ],
    ids=["empty", "cut", "list", "null", "utf-16", "deep", "long number"],
)
def test_anything_else(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_object(text, "it")
