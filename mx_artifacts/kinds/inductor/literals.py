"""Finds the strings of a Python literal (vLLM's format for its indexes) without evaluating it.

`ast.literal_eval` makes hundreds of bytes of syntax tree for each byte of text. From an index we
need only its strings and their positions. Of everything else, only the form is checked, which is
that of `repr` and `pprint`: containers of numbers, None, True, False and strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

MAX_LITERAL_BYTES = 8 << 20
"""Maximum length of an index [bytes]. vLLM's largest have one or two megabytes."""

MAX_STRINGS = 200_000
"""Maximum number of strings in an index. vLLM's largest have some ten thousand."""

MAX_TOKENS = 1_000_000
"""Maximum number of brackets, commas, colons and values. vLLM's largest have some 200,000."""

MAX_DEPTH = 32
"""Maximum depth of containers in containers. vLLM's have below ten."""

_TOKEN = re.compile(
    r"[ \t\n]*(?:(?P<open>[\[({])|(?P<close>[\])}])|(?P<comma>,)|(?P<colon>:)|(?P<quote>['\"])"
    r"|(?P<atom>(?:None|True|False|-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,24})?(?:e[+-]?[0-9]{1,3})?)(?![\w.]))"
    r"|(?P<end>\Z))"
)
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_STRING_STOPS = {quote: re.compile(rf"[\\\n{quote}]") for quote in "'\""}
_ESCAPE = re.compile(
    r"\\(?:(?P<plain>[\\'\"nrt])|x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})"
    r"|U(?P<U>00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}))"
)
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}


class LiteralString(NamedTuple):
    """A string of a literal: what it says, where its spelling begins and ends, if it is a key."""

    value: str
    start: int
    end: int
    is_key: bool


def strings_of(text: str) -> list[LiteralString]:
    """Return the strings of the literal `text`, one container, in their order.

    Strings side by side are one. Raises ValueError: it is no such literal, or too large.
    """
    if len(text) > MAX_LITERAL_BYTES or "\0" in text or "\r" in text:
        raise ValueError("an index is too long, or has characters that are not allowed")
    form, position, kind = _Form(), 0, ""
    strings: list[LiteralString] = []
    for _ in range(MAX_TOKENS):
        token, before = _TOKEN.match(text, position), kind
        if token is None or token.lastgroup is None:
            raise ValueError(f"there is no literal at character {position}")
        kind, position = token.lastgroup, token.end()
        if kind == "end":
            form.end()
            return strings
        if kind != "quote":
            form.take(kind, token[kind])
            continue
        start = position - 1
        value, position = _string(text, position, token[kind])
        if before == "quote":
            first = strings.pop()
            value, start, is_key = first.value + value, first.start, first.is_key
        else:
            is_key = form.next_is_key
            form.value()
        if len(strings) >= MAX_STRINGS:
            raise ValueError(f"an index has more than {MAX_STRINGS} strings")
        strings.append(LiteralString(value, start, position, is_key))
    raise ValueError(f"an index has more than {MAX_TOKENS} tokens")


class _Container:
    """An open container, and what has to follow: an item, a key, a colon, a value or a comma."""

    __slots__ = ("closes", "first", "in_key", "next")

    def __init__(self, bracket: str, in_key: bool) -> None:
        self.closes = _CLOSES[bracket]
        self.first = self.next = "key" if bracket == "{" else "item"
        self.in_key = in_key


_AFTER = {"item": "comma", "key": "colon", "value": "comma"}


class _Form:
    """Checks that tokens follow each other as in a literal. Raises ValueError where not."""

    def __init__(self) -> None:
        self._open: list[_Container] = []
        self._is_whole = False

    @property
    def next_is_key(self) -> bool:
        """Whether what follows is a dict's key, or part of one."""
        return bool(self._open) and (self._open[-1].in_key or self._open[-1].next == "key")

    def take(self, kind: str, token: str) -> None:
        if kind == "open":
            self._begin(token)
        elif kind == "atom":
            self.value()
        elif kind == "close":
            self._close(token)
        else:
            self._separate(kind)

    def value(self) -> None:
        """Take a value, in a container."""
        if not self._open or self._open[-1].next not in _AFTER:
            raise ValueError("a literal has a value in a wrong place")
        self._open[-1].next = _AFTER[self._open[-1].next]

    def _begin(self, bracket: str) -> None:
        in_key = self.next_is_key
        if in_key and bracket != "(":
            raise ValueError("a literal has a value that cannot be a key")
        if self._open:
            self.value()
        elif self._is_whole:
            raise ValueError("there is text after a literal")
        if len(self._open) >= MAX_DEPTH:
            raise ValueError(f"a literal has more than {MAX_DEPTH} levels")
        self._open.append(_Container(bracket, in_key))

    def _close(self, bracket: str) -> None:
        if not self._open:
            raise ValueError("a literal has too many brackets")
        container = self._open.pop()
        if bracket != container.closes or container.next not in (container.first, "comma"):
            raise ValueError("a literal has a bracket in a wrong place")
        self._is_whole = not self._open

    def _separate(self, kind: str) -> None:
        if not self._open or self._open[-1].next != kind:
            raise ValueError(f"a literal has a {kind} in a wrong place")
        container = self._open[-1]
        container.next = "value" if kind == "colon" else container.first

    def end(self) -> None:
        if not self._is_whole:
            raise ValueError("a literal has no end")


def _string(text: str, position: int, quote: str) -> tuple[str, int]:
    """Return the string that begins at `position`, behind its quote, and where it ends."""
    stop, parts = _STRING_STOPS[quote], []
    while True:
        found = stop.search(text, position)
        if found is None or found[0] == "\n":
            raise ValueError("a literal has a string without an end")
        parts.append(text[position : found.start()])
        if found[0] == quote:
            return "".join(parts), found.end()
        escape = _ESCAPE.match(text, found.start())
        if escape is None:
            raise ValueError("a literal has an escape that repr() never writes")
        plain = escape["plain"]
        parts.append(_PLAIN.get(plain, plain) if plain else chr(int(escape[0][2:], 16)))
        position = escape.end()


def with_strings(text: str, strings: Iterable[LiteralString], changes: Mapping[str, str]) -> str:
    """Return the literal `text`, whose strings are `strings`, with those in `changes` replaced.

    Every other character stays.
    """
    parts, position = [], 0
    for string in strings:
        if string.value in changes:
            parts += [text[position : string.start], repr(changes[string.value])]
            position = string.end
    return "".join([*parts, text[position:]])
