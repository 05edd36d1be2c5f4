"""Python literals, as vLLM keeps its indexes."""

from __future__ import annotations

import ast
import threading
from typing import Any

_ONE_AT_A_TIME = threading.Lock()
"""CPython 3.11 counts the depth of all threads' syntax trees together, and raises SystemError ("AST
constructor recursion depth mismatch") when two are made at once. Entries are judged by threads."""


def read_literal(text: str) -> Any:
    """Return the literal `text`; raises what `ast.literal_eval` raises. Any thread."""
    with _ONE_AT_A_TIME:
        return ast.literal_eval(text)
