"""What ninja would build is what we say, of any state of a module; without running it."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mx_artifacts.kinds.ninja.build_file import parse_build_file
from mx_artifacts.kinds.ninja.build_log import LogEntry, NinjaLog, format_log
from mx_artifacts.kinds.ninja.deps_log import (
    InputsRecord,
    PathRecord,
    format_deps,
    inputs_by_output,
    parse_deps,
)
from mx_artifacts.kinds.ninja.module_state import rapidhash_function
from mx_artifacts.kinds.ninja.pending_work import pending_work, time_below
from tests.support.ninja_program import ninja_work

BUILD = b"""\
rule compile
  command = cc $in -o $out
  depfile = $out.d
  deps = gcc
rule link
  command = ld $in -o $out
build a.o: compile a.c
build b.o: compile b.c | k
build m.so: link a.o b.o
build unneeded: link a.o
default m.so
"""
OUTPUTS = (b"a.o", b"b.o", b"m.so", b"unneeded")
INPUTS = (b"a.c", b"b.c", b"k", b"h", b"d/g")
SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class State:
    """A module's files: times [s], 0 for what is absent, and what ninja has logged."""

    times: dict[bytes, int]
    logged: dict[bytes, int]
    hashed: frozenset[bytes]
    recorded: dict[bytes, tuple[int, tuple[bytes, ...]]]

    def pending_work(self) -> tuple[str, str]:
        """Return what ninja says of this state, and what we do."""
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            log, deps = self._write(directory)
            hash_command = rapidhash_function()
            assert hash_command is not None
            ours = pending_work(
                parse_build_file(BUILD),
                log.by_output(),
                inputs_by_output(parse_deps(deps)),
                hash_command,
                time_below(directory),
            )
            return ninja_work(directory), ours

    def _write(self, directory: Path) -> tuple[NinjaLog, bytes]:
        (directory / "build.ninja").write_bytes(BUILD)
        (directory / "d").mkdir()
        for path, time in self.times.items():
            if time:
                file = directory / os.fsdecode(path)
                file.write_bytes(b"")
                os.utime(file, ns=(time * SECOND_NS, time * SECOND_NS))
        log = NinjaLog(7, tuple(self._entry(path) for path in self.logged))
        (directory / ".ninja_log").write_bytes(format_log(log))
        paths = (*OUTPUTS, *INPUTS)
        records: list[PathRecord | InputsRecord] = [PathRecord(path) for path in paths]
        for path, (time, inputs) in self.recorded.items():
            numbers = tuple(paths.index(each) for each in inputs)
            records.append(InputsRecord(paths.index(path), time * SECOND_NS, numbers))
        deps = format_deps(tuple(records))
        (directory / ".ninja_deps").write_bytes(deps)
        return log, deps

    def _entry(self, path: bytes) -> LogEntry:
        commands = {step.output: step.command for step in parse_build_file(BUILD).steps}
        hash_command = rapidhash_function()
        assert hash_command is not None
        hashed = hash_command(commands[path]) if path in self.hashed else 0xBAD
        return LogEntry(1, 2, self.logged[path] * SECOND_NS, path, hashed)


pytestmark = pytest.mark.process

CURRENT = State(
    dict.fromkeys((*OUTPUTS, *INPUTS), 5),
    dict.fromkeys(OUTPUTS, 5),
    frozenset(OUTPUTS),
    {b"a.o": (5, (b"a.c", b"h")), b"b.o": (5, (b"b.c", b"h", b"d/g"))},
)
TIMES = st.sampled_from([5, 5, 5, 5, 5, 5, 4, 6, 0])
STATES = st.builds(
    State,
    st.fixed_dictionaries(dict.fromkeys((*OUTPUTS, *INPUTS), TIMES)),
    st.fixed_dictionaries({}, optional=dict.fromkeys(OUTPUTS, st.sampled_from([5, 5, 5, 4, 6]))),
    st.frozensets(st.sampled_from(OUTPUTS)).map(lambda odd: frozenset(OUTPUTS) - odd),
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            OUTPUTS[:3],
            st.tuples(
                st.sampled_from([5, 5, 5, 4, 6]),
                st.lists(st.sampled_from(INPUTS), max_size=3).map(tuple),
            ),
        ),
    ),
)
NEAR = st.builds(
    lambda one, two, three, four: State(
        {**CURRENT.times, **one}, {**CURRENT.logged, **two}, CURRENT.hashed - three, four
    ),
    st.dictionaries(st.sampled_from((*OUTPUTS, *INPUTS)), st.sampled_from([4, 6, 0]), max_size=1),
    st.dictionaries(st.sampled_from(OUTPUTS), st.sampled_from([4, 6]), max_size=1),
    st.frozensets(st.sampled_from(OUTPUTS), max_size=1),
    st.just(CURRENT.recorded),
)


def test_outputs_that_are_current() -> None:
    assert CURRENT.pending_work() == ("", "")


@settings(max_examples=150, deadline=None)
@given(STATES | NEAR)
def test_ninja_would_build_what_we_say(state: State) -> None:
    of_ninja, ours = state.pending_work()
    assert bool(of_ninja) is bool(ours), (of_ninja, ours)


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "an output is missing": ({"times": {b"a.o": 0}}, "output a.o doesn't exist"),
    "an output is older": ({"times": {b"b.c": 6}}, "output b.o older than most recent input b.c"),
    "an implicit input is newer": ({"times": {b"k": 6}}, "b.o older than most recent input k"),
    "a header is newer": ({"times": {b"d/g": 6}}, "b.o older than most recent input d/g"),
    "a source is missing": ({"times": {b"a.c": 0}}, "a.c is missing"),
    "a header is missing": ({"times": {b"h": 0}}, "h is missing"),
    "an output is newer than its deps": ({"times": {b"a.o": 6, b"m.so": 6}}, "deps info out of"),
    "the log is older": ({"logged": {b"m.so": 4}}, "recorded mtime of m.so older than most recent"),
    "another command": ({"hashed": frozenset((b"a.o", b"m.so"))}, "command line changed for b.o"),
    "what is not needed is missing": ({"times": {b"unneeded": 0}}, ""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_reason_for_a_build_is_returned(name: str) -> None:
    changes, because = CHANGES[name]
    state = State(
        {**CURRENT.times, **changes.get("times", {})},
        {**CURRENT.logged, **changes.get("logged", {})},
        changes.get("hashed", CURRENT.hashed),
        CURRENT.recorded,
    )
    of_ninja, ours = state.pending_work()
    assert because in ours
    assert bool(ours) is bool(because)
    assert bool(of_ninja) is bool(because)


def test_outputs_that_were_never_built_or_recorded() -> None:
    state = State(CURRENT.times, {b"a.o": 5, b"b.o": 5}, CURRENT.hashed, CURRENT.recorded)
    assert "command line not found in log for m.so" in state.pending_work()[1]
    state = State(CURRENT.times, CURRENT.logged, CURRENT.hashed, {})
    assert "deps for a.o are missing" in state.pending_work()[1]


def test_links_count_as_what_they_lead_to_and_a_time_of_nothing_as_some(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"")
    os.utime(tmp_path / "real", ns=(0, 0))
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "lost").symlink_to("nowhere")
    time_of = time_below(tmp_path)
    assert [time_of(name) for name in (b"real", b"link", b"lost", b"x" * 5000)] == [1, 1, 0, 0]
