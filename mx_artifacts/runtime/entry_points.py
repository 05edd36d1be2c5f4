"""Finds kinds, metadata backends and transports of installed packages (docs/adr/0013).

Loading an entry point runs code of the package that declares it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import Any

from mx_artifacts.errors import ConfigurationError


def entry_points(group: str) -> Sequence[metadata.EntryPoint]:
    """Return the entry points of a group in an order that does not depend on their paths."""
    return sorted(metadata.entry_points(group=group), key=lambda each: (each.name, each.value))


def load_entry_point(group: str, name: str) -> Any | None:
    """Return what the first entry point `name` of `group` refers to; None where there is none.

    Raises:
        ConfigurationError: it cannot be loaded.
    """
    point = next((each for each in entry_points(group) if each.name == name), None)
    if point is None:
        return None
    try:
        return point.load()
    except Exception as error:  # whatever another package's code raises
        raise ConfigurationError(
            f"{name!r} of the entry points {group} ({point.value}) cannot be loaded: {error!r}",
            hint="repair or remove the package that declares it",
        ) from error
