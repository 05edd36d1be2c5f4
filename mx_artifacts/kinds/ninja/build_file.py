"""What a build file builds, and by which commands: parsed by an allow-list, without running ninja.

Variables have the same scopes as in ninja (its src/eval_env.cc). The paths of a `build` statement
see the variables that are set before it. Commands see those of the whole file. A variable that is
set below a `build` statement is seen only by its own command and paths. `$in` and `$out` are quoted
for the shell in commands (src/util.cc, GetShellEscapedString), and nowhere else.

In addition to what `syntax.py` refuses, this module refuses: a path that is not in its shortest
form or has `..`, an input that a later statement makes, a dependency file other than `$out.d` with
`deps = gcc`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass

from mx_artifacts.core.foreign_text import shown
from mx_artifacts.kinds.ninja.syntax import (
    Expander,
    Reference,
    Statement,
    Text,
    UnknownForm,
    statements_of,
    unknown_form,
)

_MAX_PATH_BYTES = 4096  # PATH_MAX
_NEEDS_NO_QUOTES = re.compile(rb"[A-Za-z0-9_+./-]*")
_REQUIRED_VERSION = re.compile(rb"1\.[0-9]")  # of ninja; each that keeps logs of version 7 is newer
_DEPFILE: Text = (Reference(b"out"), b".d")


@dataclass(frozen=True, slots=True)
class BuildStep:
    """How one output is made.

    Attributes:
        output: its path, as written.
        inputs: all paths that it is made from, as the statement has them.
        command: the command line, as ninja would give it to the shell.
        has_deps: whether `.ninja_deps` has further inputs, which its compiler found.
    """

    output: bytes
    inputs: tuple[bytes, ...]
    command: bytes
    has_deps: bool


@dataclass(frozen=True, slots=True)
class BuildFile:
    """A whole build file.

    Attributes:
        steps: in their order; each one's inputs are made by earlier ones, or by none.
        defaults: outputs that ninja makes by default; if there are none, it makes all outputs.
    """

    steps: tuple[BuildStep, ...]
    defaults: tuple[bytes, ...]

    def needed_steps(self) -> tuple[BuildStep, ...]:
        """Return the steps that ninja looks at, in their order."""
        if not self.defaults:
            return self.steps
        wanted, needed = set(self.defaults), []
        for step in reversed(self.steps):
            if step.output in wanted:
                wanted.update(step.inputs)
                needed.append(step)
        return tuple(reversed(needed))


def parse_build_file(content: bytes) -> BuildFile:
    """Read a build file.

    Raises:
        UnknownForm: it is not of the form that FlashInfer and TVM-FFI write.
    """
    parser = _Parser()
    for statement in statements_of(content):
        parser.take(statement)
    return parser.end()


@dataclass(frozen=True, slots=True)
class _Step:
    """A `build` statement whose command is not expanded yet."""

    line: int
    output: bytes
    explicit: tuple[bytes, ...]
    implicit: tuple[bytes, ...]
    rule: Mapping[bytes, Text]
    variables: Mapping[bytes, bytes]


class _Parser:
    def __init__(self) -> None:
        self._expander = Expander()
        self._variables: dict[bytes, bytes] = {}
        self._rules: dict[bytes, Mapping[bytes, Text]] = {}
        self._steps: dict[bytes, _Step] = {}
        self._inputs: set[bytes] = set()
        self._defaults: list[bytes] = []

    def take(self, statement: Statement) -> None:
        take = {b"rule": self._rule, b"build": self._build, b"default": self._default}
        take.get(statement.keyword, self._variable)(statement)

    def _variable(self, statement: Statement) -> None:
        value = self._expander.expand(statement.value, statement.line, self._of_file)
        if statement.name == b"ninja_required_version" and not _REQUIRED_VERSION.fullmatch(value):
            raise unknown_form(statement.line, f"the required version {shown(value)!r}")
        self._variables[statement.name] = value

    def _rule(self, statement: Statement) -> None:
        rule = dict(statement.variables)
        if statement.name in self._rules:
            raise unknown_form(statement.line, f"the rule {shown(statement.name)!r} again")
        if not rule.get(b"command"):
            raise unknown_form(statement.line, "a rule without a command")
        if b"depfile" in rule or b"deps" in rule:
            if rule.get(b"depfile") != _DEPFILE:
                raise unknown_form(statement.line, "a rule whose depfile is not $out.d")
            if rule.get(b"deps") != (b"gcc",):
                raise unknown_form(statement.line, "a rule whose deps are not gcc")
        self._rules[statement.name] = rule

    def _build(self, statement: Statement) -> None:
        line = statement.line
        rule = self._rules.get(statement.name)
        if rule is None:
            raise unknown_form(line, f"the unknown rule {shown(statement.name)!r}")
        variables: dict[bytes, bytes] = {}
        for name, value in statement.variables:
            variables[name] = self._expander.expand(value, line, self._of_file)
        output = self._path(statement.output, line, variables)
        explicit = tuple(self._path(text, line, variables) for text in statement.inputs)
        implicit = tuple(self._path(text, line, variables) for text in statement.implicit)
        self._inputs.update(explicit, implicit)
        if output in self._inputs:
            raise unknown_form(line, f"{shown(output)!r}, which it or an earlier line has as input")
        if output in self._steps:
            raise unknown_form(line, f"the output {shown(output)!r} again")
        self._steps[output] = _Step(line, output, explicit, implicit, rule, variables)

    def _default(self, statement: Statement) -> None:
        if not statement.inputs:
            raise unknown_form(statement.line, "a default statement without outputs")
        for text in statement.inputs:
            path = self._path(text, statement.line, {})
            if path not in self._steps:
                raise unknown_form(statement.line, f"the default {shown(path)!r}, which none makes")
            self._defaults.append(path)

    def _path(self, text: Text, line: int, variables: Mapping[bytes, bytes]) -> bytes:
        path = self._expander.expand(
            text, line, lambda name: variables.get(name, self._of_file(name))
        )
        if not is_shortest(path):
            raise unknown_form(line, f"the path {shown(path)!r}")
        return path

    def _of_file(self, name: bytes) -> bytes:
        return self._variables.get(name, b"")

    def end(self) -> BuildFile:
        """Return the file, when all its statements were taken."""
        steps = tuple(
            BuildStep(s.output, s.explicit + s.implicit, self._command(s), b"deps" in s.rule)
            for s in self._steps.values()
        )
        if not steps:
            raise UnknownForm("it builds nothing")
        return BuildFile(steps, tuple(self._defaults))

    def _command(self, step: _Step) -> bytes:
        special = {
            b"in": b" ".join(map(shell_quoted, step.explicit)),
            b"out": shell_quoted(step.output),
        }

        def lookup(name: bytes) -> bytes:
            if name in special:
                return special[name]
            return step.variables.get(name, self._of_file(name))

        return self._expander.expand(step.rule[b"command"], step.line, lookup)


def is_shortest(path: bytes) -> bool:
    """Return whether `path` is as ninja itself would spell it, and does not lead upwards."""
    return (
        0 < len(path) <= _MAX_PATH_BYTES
        and path == posixpath.normpath(path)
        and not path.startswith(b"//")
        and path not in (b".", b"/")
        and b".." not in path.split(b"/")
    )


def shell_quoted(path: bytes) -> bytes:
    """Return `path` as ninja has it in `$in` and `$out` of a command."""
    if _NEEDS_NO_QUOTES.fullmatch(path):
        return path
    return b"'" + path.replace(b"'", b"'\\''") + b"'"
