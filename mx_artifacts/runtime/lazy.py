"""Loads the public names of a module when they are first used, so that importing it costs nothing.

The module also imports its names below `TYPE_CHECKING`, for type checkers and editors.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(
    module: str, exports: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for `module` (PEP 562).

    `exports` maps a public name to the module below `mx_artifacts` that defines it. Where that ends
    in ":", the name is one for the module itself.
    """

    def get(name: str) -> Any:
        where = exports.get(name)
        if where is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        found = importlib.import_module(f"mx_artifacts.{where.removesuffix(':')}")
        return found if where.endswith(":") else getattr(found, name)

    return get, lambda: sorted(exports)
