"""Canonical JSON, the input of both identity hashes (docs/format.md)."""

from __future__ import annotations

import json
from typing import Any


def canonical_json(value: Any, *, sort_keys: bool, escape_non_ascii: bool) -> bytes:
    """Encode `value` as JSON without spaces, in UTF-8.

    With `sort_keys`, keys are sorted by code point at every level (Python compares `str` so).
    With `escape_non_ascii`, characters beyond ASCII become \\uXXXX escapes (UTF-16 pairs beyond
    the BMP); otherwise they stay as they are.
    NaN and infinities are refused with ValueError, lone surrogates that are not escaped with
    UnicodeEncodeError.
    """
    return json.dumps(
        value,
        sort_keys=sort_keys,
        separators=(",", ":"),
        ensure_ascii=escape_non_ascii,
        allow_nan=False,
    ).encode("utf-8")
