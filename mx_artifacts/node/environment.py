"""The process environment: the only module that reads or changes os.environ."""

from __future__ import annotations

import os
from collections.abc import Mapping

Environment = Mapping[str, str]
"""Variables by name, of this process or of another one that a caller describes."""


def environment() -> Environment:
    """Return a snapshot of the environment of this process."""
    return dict(os.environ)


def set_environment_default(name: str, value: str) -> None:
    """Set a variable that a native library reads when it is loaded, unless the user has set it."""
    os.environ.setdefault(name, value)
