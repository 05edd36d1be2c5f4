"""Decides whether ninja would build something, by the rules of ninja's code; ninja is not run.

The rules are those of its src/graph.cc, RecomputeOutputDirty and LoadDepsFromLog, for the steps
that `build_file.py` allows. A step is run again unless: each input exists; its output exists and is
not older than any input; `.ninja_log` has the output, with the hash of its command and with a time
that is not before that of any input; and, if its compiler finds inputs, `.ninja_deps` has them with
a time that is not before the output's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from mx_artifacts.core.foreign_text import shown
from mx_artifacts.kinds.ninja.build_file import BuildFile, BuildStep
from mx_artifacts.kinds.ninja.build_log import LogEntry
from mx_artifacts.kinds.ninja.deps_log import OutputInputs

TimeOf = Callable[[bytes], int]
"""Returns the modification time [ns] of the file at a path, 0 where there is none."""


def pending_work(
    build: BuildFile,
    log: Mapping[bytes, LogEntry],
    deps: Mapping[bytes, OutputInputs],
    hash_command: Callable[[bytes], int],
    time_of: TimeOf,
) -> str:
    """Say why ninja would build something, or "" when nothing is to be done.

    `log` and `deps` map an output to what `.ninja_log` and `.ninja_deps` say of it last.
    """
    time_of = _Times(time_of).__getitem__
    made = {step.output for step in build.steps}
    for step in build.needed_steps():
        inputs = step.inputs
        if step.has_deps:
            recorded = deps.get(step.output)
            if recorded is None:
                return f"deps for {shown(step.output)} are missing"
            if time_of(step.output) > recorded.mtime_ns:
                return f"stored deps info out of date for {shown(step.output)}"
            if not made.isdisjoint(recorded.inputs):
                return f"deps of {shown(step.output)} name what another step makes"
            inputs += recorded.inputs
        reason = _work_of(step, inputs, log.get(step.output), hash_command, time_of)
        if reason:
            return reason
    return ""


class _Times(dict[bytes, int]):
    """Times by path, each asked for once: a header is an input of every object."""

    def __init__(self, time_of: TimeOf) -> None:
        super().__init__()
        self._time_of = time_of

    def __missing__(self, path: bytes) -> int:
        self[path] = time_ns = self._time_of(path)
        return time_ns


def _work_of(
    step: BuildStep,
    inputs: tuple[bytes, ...],
    entry: LogEntry | None,
    hash_command: Callable[[bytes], int],
    time_of: TimeOf,
) -> str:
    output, made_ns = shown(step.output), time_of(step.output)
    if not made_ns:
        return f"output {output} doesn't exist"
    if entry is None:
        return f"command line not found in log for {output}"
    if hash_command(step.command) != entry.command_hash:
        return f"command line changed for {output}"
    times = list(map(time_of, inputs))
    if min(times) and max(times) <= min(made_ns, entry.mtime_ns):
        return ""
    for path, time_ns in zip(inputs, times, strict=True):
        if not time_ns:
            return f"{shown(path)} is missing"
        if made_ns < time_ns:
            return f"output {output} older than most recent input {shown(path)}"
        if entry.mtime_ns < time_ns:
            return f"recorded mtime of {output} older than most recent input {shown(path)}"
    return ""


def time_below(directory: Path) -> TimeOf:
    """Return a function for the times of files by path; relative paths begin at `directory`.

    As ninja does it: links are followed, and a time of 0 counts as 1. A path that cannot be read
    counts as absent.
    """

    above = os.fsencode(directory) + b"/"

    def time_of(path: bytes) -> int:
        try:
            return os.stat(path if path[:1] == b"/" else above + path).st_mtime_ns or 1
        except OSError:
            return 0

    return time_of
