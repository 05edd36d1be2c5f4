"""Documents of a workspace, which may be torn, old or edited."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.json_documents import (
    field_of,
    read_document,
    relative_path,
    texts_of,
)
from mx_artifacts.filesystem.resolved_path import open_directory


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Iterator[Directory]:
    with open_directory(tmp_path) as directory:
        yield directory


def test_an_object_is_read(place: Directory) -> None:
    (place.path / "x.json").write_text('{"a": 1}')
    assert read_document(place, "x.json", 100) == {"a": 1}


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'"a"', b"\xff{}", b"[" * 100_000, b"{} {}"])
def test_the_error_names_the_value_that_is_no_object(place: Directory, content: bytes) -> None:
    (place.path / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.json"):
        read_document(place, "x.json", 10**6)


def test_one_that_is_too_long_is_not_read(place: Directory) -> None:
    (place.path / "x.json").write_text('{"a": 1}')
    with pytest.raises(ValueError, match=r"x\.json"):
        read_document(place, "x.json", 7)
    with pytest.raises(FileNotFoundError):
        read_document(place, "y.json", 7)


@pytest.mark.parametrize(
    ("value", "kind"), [(True, int), (1, bool), (1.0, int), ("1", int), (None, str), ([], dict)]
)
def test_a_field_is_exactly_of_its_type(value: object, kind: type) -> None:
    with pytest.raises(ValueError, match=f"'a' is not a {kind.__name__}"):
        field_of({"a": value}, "a", kind)
    with pytest.raises(ValueError, match="'b' is not"):
        field_of({"a": value}, "b", kind)


def test_a_field_of_something_else_than_an_object_is_refused() -> None:
    with pytest.raises(ValueError, match="'a' is not"):
        field_of(["a"], "a", str)  # type: ignore[arg-type]


def test_texts_are_all_text() -> None:
    assert texts_of({"a": ["x", ""]}, "a") == ("x", "")
    for wrong in (["x", 1], "xy", None):
        with pytest.raises(ValueError, match="'a'"):
            texts_of({"a": wrong}, "a")


@pytest.mark.parametrize("path", ["a", "a/b", "..a/.b", "a..", "a/…", "a b"])
def test_a_path_that_stays_in_its_root_is_taken_as_it_is(path: str) -> None:
    assert relative_path(path) == path


@pytest.mark.parametrize(
    "path", ["", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/../b", "../a", "a/..", "a\0b"]
)
def test_a_path_that_could_leave_its_root_or_has_two_forms_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a normalised relative path"):
        relative_path(path)
