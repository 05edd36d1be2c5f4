"""ninja's state of one directory that it built, and how to make it valid in another place.

ninja builds an output again unless all of this is true (its src/graph.cc, RecomputeOutputDirty and
LoadDepsFromLog): the hash of its command line is that in `.ninja_log`; every input exists; no input
is newer than the output, nor newer than the output's time in `.ninja_log`; the output is not newer
than its time in `.ninja_deps`. So in all three places each output gets the time of the newest input
on this node, independent of the times that arrived and of the time at which packages were installed
here. Absolute paths below the old root become the same paths below the new root.

ninja itself never reads fetched files: `pending_work.py` judges by the same rules.

An input that is newer here need not be different: the artifact's identity has the versions of the
packages to which inputs belong.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from mx_artifacts.bulk.overwrite import overwrite
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.filesystem.regular_file import have_same_content, read_regular_file
from mx_artifacts.kinds.ninja.build_file import BuildFile, parse_build_file
from mx_artifacts.kinds.ninja.build_log import (
    MAX_LOG_BYTES,
    LogEntry,
    NinjaLog,
    format_log,
    parse_log,
)
from mx_artifacts.kinds.ninja.deps_log import (
    MAX_DEPS_BYTES,
    InputsRecord,
    OutputInputs,
    PathRecord,
    Record,
    format_deps,
    inputs_by_output,
    parse_deps,
)
from mx_artifacts.kinds.ninja.paths import below, is_plain, move_path, move_paths, paths_in, root_of
from mx_artifacts.kinds.ninja.pending_work import pending_work, time_below
from mx_artifacts.kinds.ninja.syntax import MAX_BUILD_FILE_BYTES, UnknownForm

BUILD_FILE, LOG_FILE, DEPS_FILE = "build.ninja", ".ninja_log", ".ninja_deps"
STATE_FILES = frozenset({BUILD_FILE, LOG_FILE, DEPS_FILE})

HashCommand = Callable[[bytes], int]


class NotCurrent(Exception):
    """The module is not whole, or cannot be made current here; says why."""


class NotUnderstood(NotCurrent):
    """Its build file is not of the form that FlashInfer and TVM-FFI write; says where and what."""


def rapidhash_function() -> HashCommand | None:
    """Return ninja's hash of command lines, None where its package is not installed."""
    try:
        from rapidhash import rapidhash  # not on every platform
    except ImportError:
        return None
    hash_function: HashCommand = rapidhash
    return hash_function


def load_module(directory: Path, staged: Path, root: Path) -> NinjaModule:
    """Read the state of `directory`, a directory below `staged` that is to be below `root`.

    Raises:
        NotCurrent: it is not whole, or damaged.
        NotUnderstood: its build file has more than we judge.
    """
    text = _read(directory / BUILD_FILE, MAX_BUILD_FILE_BYTES)
    try:
        log = parse_log(_read(directory / LOG_FILE, MAX_LOG_BYTES))
        deps = parse_deps(_read(directory / DEPS_FILE, MAX_DEPS_BYTES))
        paths = paths_in(text) | {r.path for r in deps if isinstance(r, PathRecord)}
        name = os.fsencode(directory.relative_to(staged).as_posix())
        built_in = root_of(name, paths)
    except ValueError as error:
        raise NotCurrent(str(error)) from None
    for place in (staged, root):
        if built_in is not None and not is_plain(os.fsencode(place)):
            raise NotCurrent(f"{place} has characters that ninja's files would have to quote")
    module = NinjaModule(directory, staged, root, built_in, text, _parsed(text), log, deps)
    module.require_outputs_inside()
    return module


def _parsed(text: bytes) -> BuildFile:
    try:
        return parse_build_file(text)
    except UnknownForm as error:
        raise NotUnderstood(
            f"its {BUILD_FILE} is not of the form that FlashInfer and TVM-FFI write: {error}; "
            "let its engine build it on this node, or publish one that only they wrote"
        ) from None


def _read(path: Path, max_bytes: int) -> bytes:
    try:
        return read_regular_file(path, max_bytes)
    except FileNotFoundError:
        raise NotCurrent(f"{path.name} is missing: it was not built to its end") from None
    except OSError as error:
        raise NotCurrent(f"{path.name} cannot be read: {error.strerror}") from error


@dataclass(frozen=True)
class NinjaModule:
    """A module as it came.

    Attributes:
        directory: where it is now, below `staged`.
        root: where `staged` will be.
        built_in: the root that its absolute paths were made for; None: it has none to itself.
        text: its build file, and `build` what that says.
    """

    directory: Path
    staged: Path
    root: Path
    built_in: bytes | None
    text: bytes
    build: BuildFile
    log: NinjaLog
    deps: tuple[Record, ...]
    _input_times: dict[bytes, int] = field(default_factory=dict, compare=False)

    def pending_work(self, hash_command: HashCommand) -> str:
        """Say why ninja would build something of this module as it is and where it is, or ""."""
        log, time_of = self.log.by_output(), time_below(self.directory)
        return pending_work(self.build, log, self._recorded, hash_command, time_of)

    def require_consistent(self, hash_command: HashCommand) -> None:
        """Check that the log is of the build file's commands.

        Raises:
            NotCurrent: it is not, so its source would have built it again too.
        """
        log = self.log.by_output()
        for step in self.build.steps:
            entry = log.get(step.output)
            if entry is not None and entry.command_hash != hash_command(step.command):
                output = shown(step.output)
                raise NotCurrent(f"{output} was built by another command than {BUILD_FILE} has")

    def work_in_root(self, hash_command: HashCommand) -> str:
        """Say why ninja would build something after `write`, where `root` will be, or "".

        Raises:
            NotCurrent: an input is missing here, or another one is in the root.
        """
        time_ns = self._newest_input_ns
        log = {o: replace(entry, mtime_ns=time_ns) for o, entry in self.log.by_output().items()}
        deps = {o: replace(each, mtime_ns=time_ns) for o, each in self._recorded.items()}

        def time_of(path: bytes) -> int:
            if path in self._made:
                return time_ns if _is_file(self._here(path)) else 0
            return self._time_of_input(path)

        return pending_work(self.build, log, deps, hash_command, time_of)

    def write(self, hash_command: HashCommand | None) -> None:
        """Make the staged files right for their place below `root`.

        Without `hash_command` the hashes of commands stay, which is right if `root` is `built_in`.

        Raises:
            NotCurrent: an input is missing here, or another one is in the root.
        """
        new, time_ns = os.fsencode(self.root), self._newest_input_ns
        text = move_paths(self.text, self.built_in, new)
        steps = _parsed(text).steps if hash_command else ()
        hashes = {step.output: hash_command(step.command) for step in steps if hash_command}
        entries = (self._moved_entry(entry, new, time_ns, hashes) for entry in self.log.entries)
        log = NinjaLog(self.log.version, tuple(entries))
        deps = tuple(self._moved_record(record, new, time_ns) for record in self.deps)
        overwrite(self.directory / BUILD_FILE, text)
        overwrite(self.directory / LOG_FILE, format_log(log))
        overwrite(self.directory / DEPS_FILE, format_deps(deps))
        for output in map(self._here, self._made):
            if _is_file(output):
                os.utime(output, ns=(time_ns, time_ns), follow_symlinks=False)

    def _moved_entry(
        self, entry: LogEntry, new: bytes, time_ns: int, hashes: dict[bytes, int]
    ) -> LogEntry:
        output = move_path(entry.output, self.built_in, new)
        command_hash = hashes.get(output, entry.command_hash)
        return replace(entry, output=output, mtime_ns=time_ns, command_hash=command_hash)

    def _moved_record(self, record: Record, new: bytes, time_ns: int) -> Record:
        if isinstance(record, PathRecord):
            return PathRecord(move_path(record.path, self.built_in, new))
        return replace(record, mtime_ns=time_ns)

    # --- inputs and outputs ----------------------------------------------------------------------

    def require_outputs_inside(self) -> None:
        """Check that everything that was or will be built is in the module's own directory.

        Raises:
            NotCurrent: something does not, or would replace ninja's own files.
        """
        paths = [record.path for record in self.deps if isinstance(record, PathRecord)]
        made = {paths[r.output] for r in self.deps if isinstance(r, InputsRecord)}
        made |= {entry.output for entry in self.log.entries}
        made |= {step.output for step in self.build.steps}
        for path in made:
            output = Path(os.path.normpath(self._here(path)))
            if self.directory not in output.parents:
                raise NotCurrent(f"its output {shown(path)} is outside its directory")
            if output.name in STATE_FILES:
                raise NotCurrent(f"its output {shown(path)} is a file of ninja's own")

    def _here(self, path: bytes) -> str:
        """Return where a path, as the module's files have it, is on this node while staged."""
        inside = below(path, self.built_in)
        if inside is not None:
            return os.path.join(self.staged, os.fsdecode(inside))
        return os.path.join(self.directory, os.fsdecode(path))  # which an absolute path overrides

    @cached_property
    def _made(self) -> frozenset[bytes]:
        return frozenset(step.output for step in self.build.steps)

    @cached_property
    def _recorded(self) -> dict[bytes, OutputInputs]:
        return inputs_by_output(self.deps)

    @cached_property
    def _newest_input_ns(self) -> int:
        found = [self._recorded[s.output] for s in self.build.steps if s.output in self._recorded]
        recorded: set[bytes] = set().union(*(each.inputs for each in found))
        times = [1]  # ninja takes 0 for "missing"
        for path in sorted(recorded):
            times.append(self._time_of_input(path))
            if not times[-1]:
                raise NotCurrent(
                    f"{shown(path)}, which it was compiled from, is not on this node: "
                    "it comes from another compile environment"
                )
        stated = {path for step in self.build.steps for path in step.inputs} - self._made
        times += map(self._time_of_input, stated)
        return max(times)

    def _time_of_input(self, path: bytes) -> int:
        """Return the mtime [ns] of an input, 0 where it is absent.

        Where another one is in the root already, that is the newer of the two.
        """
        if path not in self._input_times:
            self._input_times[path] = self._newest_of(path)
        return self._input_times[path]

    def _newest_of(self, path: bytes) -> int:
        if b".." in path.split(b"/"):
            raise NotCurrent(f"its input {shown(path)} leads upwards")
        here = self._here(path)
        time_ns = _time_of_file(here)
        inside = below(path, self.built_in)
        if time_ns and inside is not None and not here.startswith(f"{self.directory}/"):
            there = os.path.join(self.root, os.fsdecode(inside))
            there_ns = _time_of_file(there)
            # Made by the engine, or kept by an earlier install; which one wins is not known.
            if there_ns and not have_same_content(here, there):
                raise NotCurrent(f"{shown(there)} is there already and differs from its source")
            return max(time_ns, there_ns)
        return time_ns


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _time_of_file(path: str) -> int:
    """Return the mtime [ns] of the regular file at `path`, 0 where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return 0
    return max(1, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else 0
