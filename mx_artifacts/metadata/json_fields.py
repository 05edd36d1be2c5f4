"""Checked reading of JSON that others wrote.

Values are limited to what the wire can carry, so that one bad record cannot spoil an answer with
many records. All methods raise ValueError with the object, the field and the expected form. An
absent or null field is the empty value of its type.
"""

from __future__ import annotations

import re

from mx_artifacts.core.json_objects import parse_object

_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonFields:
    """The fields of one JSON object."""

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{what} is not a JSON object")
        self._values: dict[str, object] = value
        self._what = what

    @classmethod
    def parse(cls, text: bytes, what: str) -> JsonFields:
        """Return the fields of the JSON object `text`; `what` names it in errors."""
        return cls(parse_object(text, what), what)

    def _bad(self, name: str, expected: str) -> ValueError:
        return ValueError(f"{self._what}: {name} is not {expected}")

    def value(self, name: str) -> object:
        """Take any value; None when absent."""
        return self._values.get(name)

    def text(self, name: str) -> str:
        """Take a string that UTF-8 can encode."""
        value = self._values.get(name)
        if value is None:
            return ""
        if not _is_text(value):
            raise self._bad(name, "a string")
        return str(value)

    def integer(self, name: str, bits: int = 32) -> int:
        """Take a whole number of at most `bits` bits.

        Also as a decimal string, or with the zero fraction that Lua's JSON may add.
        """
        value = self._values.get(name)
        number = -1
        if type(value) is int:
            number = value
        elif value is None:
            number = 0
        elif isinstance(value, str):
            number = int(value) if value.isascii() and value.isdecimal() else -1
        elif isinstance(value, float):
            number = int(value) if value == value // 1 else -1
        if not 0 <= number < 1 << bits:
            raise self._bad(name, f"a whole number of {bits} bits")
        return number

    def number(self, name: str) -> float | None:
        """Take a number."""
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._bad(name, "a number")
        return float(value) if abs(value) < 1e38 else None  # what the wire's float can hold

    def texts(self, name: str) -> dict[str, str]:
        """Take an object of strings."""
        value = self._values.get(name)
        if not value:  # Lua's JSON does not tell {} from []
            return {}
        if not isinstance(value, dict) or not all(map(_is_text, [*value, *value.values()])):
            raise self._bad(name, "an object of strings")
        return value

    def items(self, name: str) -> list[object]:
        """Take a list."""
        value = self._values.get(name)
        if not value:
            return []
        if not isinstance(value, list):
            raise self._bad(name, "a list")
        return value

    def octets(self, name: str) -> bytes:
        """Take a list of numbers 0..255."""
        try:
            return bytes(self.items(name))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise self._bad(name, "a list of bytes") from None


def _is_text(value: object) -> bool:
    """Return whether `value` is a string without lone surrogates, which JSON's escapes can make."""
    return isinstance(value, str) and (value.isascii() or not _SURROGATE.search(value))
