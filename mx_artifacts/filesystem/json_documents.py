"""Reads the JSON files of a workspace, which may be incomplete, old or edited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from mx_artifacts.core.foreign_text import shown
from mx_artifacts.core.json_objects import parse_object
from mx_artifacts.filesystem.beneath import Directory

T = TypeVar("T")


def read_document(directory: Directory, name: str, max_bytes: int) -> Mapping[str, Any]:
    """Return the JSON object in the regular file `name`, of at most `max_bytes`.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file, too long, or holds no JSON object.
    """
    try:
        content = directory.read(name, max_bytes)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return parse_object(content, name)


def field_of(document: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return the field `name`, which must be exactly of type `kind`.

    Raises:
        ValueError: it is missing or of another type.
    """
    value = document.get(name) if isinstance(document, dict) else None
    if type(value) is not kind:  # isinstance would take True for an int
        raise ValueError(f"{name!r} is not a {kind.__name__}")
    return value


def texts_of(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the field `name`, a list of strings. Raises ValueError when it is not."""
    values: list[Any] = field_of(document, name, list)
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name!r} contains a value that is not text")
    return tuple(values)


def relative_path(text: str) -> str:
    """Return `text` when it is a normalised path that cannot leave its root, else ValueError."""
    parts = f"/{text}/"
    if "//" in parts or "/./" in parts or "/../" in parts or "\0" in text:
        raise ValueError(f"'{shown(text)}' is not a normalised relative path")
    return text
