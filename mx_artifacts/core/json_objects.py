"""Parses JSON from untrusted writers: every problem becomes a ValueError."""

from __future__ import annotations

import json
from typing import Any


def parse_object(text: bytes | str, what: str) -> dict[str, Any]:
    """Return the JSON object `text`; `what` names it in errors.

    Raises:
        ValueError: `text` is no JSON object, is not UTF-8, or is nested too deeply.
    """
    try:
        value = json.loads(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError(f"{what} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a JSON object")
    return value
