"""Splits a build file of ninja into its statements; knows their form, not their meaning.

What is a token, an escape or the end of a line is exactly what it is to ninja (its src/lexer.in.cc
and manifest_parser.cc), for the commands must come out byte for byte as ninja has them. Only the
statements that FlashInfer and TVM-FFI write exist here: variables, `rule`, `build` with at most one
output and implicit inputs, `default`. Everything else raises `UnknownForm`; in particular whatever
makes ninja read or write another file (`include`, `subninja`, `builddir`, response files, dyndep).

Expanding is bounded: a file of a few kilobytes can say a text of many gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mx_artifacts.core.foreign_text import shown

MAX_BUILD_FILE_BYTES = 1 << 20
"""Maximum size of a build file [bytes]. FlashInfer's have 1 kB and 0.2 kB for each source."""

MAX_TEXT_BYTES = 128 * 1024
"""Maximum size of an expanded text [bytes]: Linux gives a shell no longer command (MAX_ARG_STRLEN).
"""

MAX_EXPANDED_BYTES = 16 << 20
"""Maximum size of all expanded texts of a file [bytes]. A real command has some kilobytes."""

MAX_STATEMENTS = 20_000
"""Maximum number of statements in a file. Real ones have twenty, and one for each source."""

_NINJAS_OWN = frozenset(
    b"command depfile deps description dyndep generator msvc_deps_prefix pool restat rspfile "
    b"rspfile_content builddir in in_newline out phony console".split()
)
"""Names that mean something to ninja. A variable with such a name would also replace what a
rule does not say: `rspfile` at the top of a file gives every command a response file."""

_RULE_VARIABLES = frozenset((b"command", b"depfile", b"deps"))
_IN_COMMANDS = frozenset((b"in", b"out"))
_OTHER_STATEMENTS = frozenset((b"include", b"subninja", b"pool"))

_UNEXPECTED_BYTE = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")
_NAME = re.compile(rb"[a-zA-Z0-9_.-]+")
_BLANK = re.compile(rb"(?:(?: +|\$\n)*)")
_INDENT = re.compile(rb" +(?![ \n])")
_EMPTY_LINE = re.compile(rb" *\n")
_TO_SPECIAL = re.compile(rb"[^$\n]*")
_TO_SPECIAL_IN_PATH = re.compile(rb"[^$ :|\n]*")
_DOLLAR = re.compile(
    rb"\$(?:(?P<plain>[$ :])|(?P<join>\n *)"
    rb"|\{(?P<braced>[a-zA-Z0-9_.-]+)\}|(?P<name>[a-zA-Z0-9_-]+))"
)


class UnknownForm(Exception):
    """A build file has what FlashInfer and TVM-FFI do not write; says where and what."""


class Reference(NamedTuple):
    """A variable in a text, such as `$cflags`."""

    name: bytes


Text = tuple[bytes | Reference, ...]
"""A text as it is written: literal parts and references."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement.

    Attributes:
        line: where it begins, from 1 on.
        keyword: `b"build"`, `b"rule"`, `b"default"`, or b"" for a variable.
        name: of the variable, of the rule, or of the rule that builds.
        value: of the variable, else empty.
        output: what is built, else empty.
        inputs: of what is built, or the paths of `default`.
        implicit: inputs that are not part of `$in`.
        variables: what is set in the indented lines below it.
    """

    line: int
    keyword: bytes = b""
    name: bytes = b""
    value: Text = ()
    output: Text = ()
    inputs: tuple[Text, ...] = ()
    implicit: tuple[Text, ...] = ()
    variables: tuple[tuple[bytes, Text], ...] = ()


def statements_of(content: bytes) -> Iterator[Statement]:
    """Yield the statements of a build file in their order.

    Raises:
        UnknownForm: it has something else, too much of it, or no end.
    """
    if len(content) > MAX_BUILD_FILE_BYTES:
        raise UnknownForm(f"it is longer than {MAX_BUILD_FILE_BYTES} bytes")
    reader = _Reader(content)
    odd = _UNEXPECTED_BYTE.search(content)
    if odd is not None:
        raise reader.unknown(f"the byte {odd[0]!r}", odd.start())
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise reader.unknown("text that is not UTF-8", error.start) from None
    for number, statement in enumerate(_statements(reader)):
        if number >= MAX_STATEMENTS:
            raise UnknownForm(f"it has more than {MAX_STATEMENTS} statements")
        yield statement


def _statements(reader: _Reader) -> Iterator[Statement]:
    while not reader.at_end():
        if reader.take(_EMPTY_LINE):
            continue
        start, line = reader.position, reader.line()
        keyword = reader.name("a statement")
        if keyword in _OTHER_STATEMENTS:
            raise reader.unknown(f"the statement {shown(keyword)!r}", start)
        if keyword == b"build":
            yield _build(reader, line)
        elif keyword == b"rule":
            name = reader.name("the name of a rule")
            reader.end_line()
            yield Statement(line, b"rule", name, variables=_rule_variables(reader))
        elif keyword == b"default":
            paths = tuple(reader.paths())
            reader.end_line()
            yield Statement(line, b"default", inputs=paths)
        else:
            reader.require_free_name(keyword, start)
            yield Statement(line, name=keyword, value=reader.value())


def _build(reader: _Reader, line: int) -> Statement:
    start = reader.position
    outputs = tuple(reader.paths())
    if len(outputs) != 1:
        raise reader.unknown(f"a build statement with {len(outputs)} outputs", start)
    reader.literal(b":")
    name = reader.name("the name of a rule")
    inputs: tuple[Text, ...] = tuple(reader.paths())
    implicit: tuple[Text, ...] = ()
    if not inputs:
        raise reader.unknown("a build statement without inputs", start)
    if reader.peek() == b"|" and reader.peek(2) != b"|@":  # which is a token of its own
        reader.literal(b"|")
        implicit = tuple(reader.paths())
    reader.end_line()
    variables = []
    for start, key, value in reader.block():
        reader.require_free_name(key, start)
        variables.append((key, value))
    return Statement(line, b"build", name, (), outputs[0], inputs, implicit, tuple(variables))


def _rule_variables(reader: _Reader) -> tuple[tuple[bytes, Text], ...]:
    variables = []
    for start, key, value in reader.block(_IN_COMMANDS):
        if key not in _RULE_VARIABLES:
            raise reader.unknown(f"the rule variable {shown(key)!r}", start)
        variables.append((key, value))
    return tuple(variables)


class _Reader:
    """A place in a build file. Its methods read from there on, and raise `UnknownForm`."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0
        self._counted = (0, 1)  # up to where lines were counted, and which that is

    def at_end(self) -> bool:
        return self.position == len(self._content)

    def line(self, position: int | None = None) -> int:
        end = self.position if position is None else position
        begin, line = self._counted if self._counted[0] <= end else (0, 1)
        self._counted = (end, line + self._content.count(b"\n", begin, end))
        return self._counted[1]

    def unknown(self, what: str, position: int | None = None) -> UnknownForm:
        return unknown_form(self.line(position), what)

    def peek(self, count: int = 1) -> bytes:
        return self._content[self.position : self.position + count]

    def take(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        match = pattern.match(self._content, self.position)
        if match is not None:
            self.position = match.end()
        return match

    def name(self, what: str) -> bytes:
        match = self.take(_NAME)
        if match is None:
            raise self.unknown(f"{shown(self.peek())!r} in the place of {what}")
        self.take(_BLANK)
        return match[0]

    def literal(self, token: bytes) -> None:
        if self.peek() != token:
            raise self.unknown(f"{shown(self.peek())!r} in the place of {shown(token)!r}")
        self.position += 1
        self.take(_BLANK)

    def end_line(self) -> None:
        if not self.take(_EMPTY_LINE):
            raise self.unknown(f"{shown(self.peek())!r} in the place of the end of the line")

    def block(self, own: frozenset[bytes] = frozenset()) -> Iterator[tuple[int, bytes, Text]]:
        """Yield (position, name, value) of each indented line; values may refer to `own`."""
        while self.take(_INDENT):
            start = self.position
            yield start, self.name("a variable"), self.value(own)

    def value(self, own: frozenset[bytes] = frozenset()) -> Text:
        """Read `= text` to the end of the line."""
        self.literal(b"=")
        text = self._text(_TO_SPECIAL, own)
        self.position += 1  # the end of the line
        return text

    def paths(self) -> Iterator[Text]:
        while path := self._text(_TO_SPECIAL_IN_PATH):
            self.take(_BLANK)
            yield path

    def _text(self, literal: re.Pattern[bytes], own: frozenset[bytes] = frozenset()) -> Text:
        parts: list[bytes | Reference] = []
        while True:
            if match := self.take(literal):
                parts.append(match[0])
            if self.at_end():
                raise self.unknown("the end of the file within a line")
            if self.peek() != b"$":
                return tuple(filter(None, parts))
            start = self.position
            match = self.take(_DOLLAR)
            if match is None:
                raise self.unknown(f"the escape {shown(self._content[start : start + 2])!r}")
            if match["plain"]:
                parts.append(match["plain"])
            elif not match["join"]:
                name = match["braced"] or match["name"]
                if name in _NINJAS_OWN and name not in own:
                    raise self.unknown(f"a reference to {shown(name)!r}", start)
                parts.append(Reference(name))

    def require_free_name(self, name: bytes, position: int) -> None:
        if name in _NINJAS_OWN:
            raise self.unknown(f"the variable {shown(name)!r}", position)


def unknown_form(line: int, what: str) -> UnknownForm:
    """Return the error that `line` has `what`."""
    return UnknownForm(f"line {line} has {what}")


class Expander:
    """Expands the texts of one file, and counts what that comes to."""

    def __init__(self) -> None:
        self._left = MAX_EXPANDED_BYTES

    def expand(self, text: Text, line: int, lookup: Callable[[bytes], bytes]) -> bytes:
        """Return `text` of `line` with the value that `lookup` has for each reference.

        Raises:
            UnknownForm: it becomes too long, or all of the file does.
        """
        values = [part if isinstance(part, bytes) else lookup(part.name) for part in text]
        size = sum(map(len, values))
        self._left -= size + len(values)  # empty values cost time, too
        if size > MAX_TEXT_BYTES:
            raise unknown_form(line, f"a text that expands to more than {MAX_TEXT_BYTES} bytes")
        if self._left < 0:
            raise unknown_form(line, f"all texts expand to more than {MAX_EXPANDED_BYTES} bytes")
        return b"".join(values)
