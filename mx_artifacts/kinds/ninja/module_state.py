"""What ninja knows of one directory that it built, and how to make that true in another place.

ninja builds an output again unless all of this holds (its src/graph.cc, RecomputeOutputDirty and
LoadDepsFromLog): its command line hashes to what `.ninja_log` has; every input is there; no input
is newer than the output, nor than the output's time in `.ninja_log`; the output is not newer than
its time in `.ninja_deps`. So each output, in all three places, gets the time of the newest input
that this node has, whatever times arrived and whenever its packages were installed. Absolute paths
below the root that it was built in become the same below the root it goes to.

That an input is newer here does not tell that it differs: the artifact's identity has the versions
of what it belongs to.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from filecmp import cmp
from functools import cached_property
from pathlib import Path

from mx_artifacts.bulk.overwrite import overwrite
from mx_artifacts.kinds.ninja.build_log import LogEntry, NinjaLog, format_log, parse_log
from mx_artifacts.kinds.ninja.deps_log import (
    InputsRecord,
    PathRecord,
    Record,
    format_deps,
    parse_deps,
)
from mx_artifacts.kinds.ninja.paths import below, is_plain, move_path, move_paths, paths_in, root_of
from mx_artifacts.kinds.ninja.program import commands_of

BUILD_FILE, LOG_FILE, DEPS_FILE = "build.ninja", ".ninja_log", ".ninja_deps"
STATE_FILES = frozenset({BUILD_FILE, LOG_FILE, DEPS_FILE})
MAX_STATE_BYTES = 64 << 20
"""Real state files have below 1 MB."""

# What makes ninja read files, or keep its state, elsewhere. Neither tool writes these.
_ELSEWHERE = re.compile(rb"^\s*(builddir|include|subninja)\b", re.MULTILINE)


class NotCurrent(Exception):
    """The module is not whole, or cannot be made current here; says why."""


def rapidhash_function() -> Callable[[bytes], int] | None:
    """Return ninja's hash of command lines, None where its package is not installed."""
    try:
        from rapidhash import rapidhash  # not on every platform
    except ImportError:
        return None
    hash_function: Callable[[bytes], int] = rapidhash
    return hash_function


def load_module(directory: Path, staged: Path, root: Path) -> NinjaModule:
    """Read the state of `directory`, a directory below `staged` that is to stand below `root`.

    Raises:
        NotCurrent: it is not whole, damaged, or not of a form that can be adapted.
    """
    texts = {BUILD_FILE: _read(directory / BUILD_FILE)}
    texts |= {path.name: _read(path) for path in sorted(directory.glob("*.d")) if path.is_file()}
    if _ELSEWHERE.search(texts[BUILD_FILE]):
        raise NotCurrent(f"its {BUILD_FILE} refers to other build files or directories")
    try:
        log = parse_log(_read(directory / LOG_FILE))
        deps = parse_deps(_read(directory / DEPS_FILE))
        paths = {path for text in texts.values() for path in paths_in(text)}
        paths |= {record.path for record in deps if isinstance(record, PathRecord)}
        name = os.fsencode(directory.relative_to(staged).as_posix())
        built_in = root_of(name, paths)
    except ValueError as error:
        raise NotCurrent(str(error)) from None
    for place in (staged, root):
        if built_in is not None and not is_plain(os.fsencode(place)):
            raise NotCurrent(f"{place} has characters that ninja's files would have to quote")
    return NinjaModule(directory, staged, root, built_in, texts, log, deps)


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_STATE_BYTES:
            raise NotCurrent(f"{path.name} is too long")
        return path.read_bytes()
    except FileNotFoundError:
        raise NotCurrent(f"{path.name} is missing: it was not built to its end") from None


@dataclass(frozen=True)
class NinjaModule:
    """A module as it came.

    Attributes:
        directory: where it is now, below `staged`.
        root: where `staged` will stand.
        built_in: the root that its absolute paths were made for; None: it has none to itself.
        texts: the build file, and what dependency files there are, by name.
    """

    directory: Path
    staged: Path
    root: Path
    built_in: bytes | None
    texts: Mapping[str, bytes]
    log: NinjaLog
    deps: tuple[Record, ...]

    def require_consistent(self, ninja: str) -> None:
        """Check that the log is of these commands, before `write` is first called.

        Raises:
            NotCurrent: it is not, so its source would have built it again too.
            NinjaFailed: the build file is not valid.
        """
        hashes = self._hashes(ninja)
        for entry in {entry.output: entry for entry in self.log.entries}.values():
            if hashes.get(entry.output, entry.command_hash) != entry.command_hash:
                output = os.fsdecode(entry.output)
                raise NotCurrent(f"{output} was built by another command than {BUILD_FILE} has")

    def write(self, place: Path, ninja: str = "") -> None:
        """Make the files right for standing below `place` instead of `staged`.

        Without `ninja` the hashes of commands stay, which is right if `place` is `built_in`.

        Raises:
            NotCurrent: an input is missing here, or another one stands in the root.
        """
        new, time_ns = os.fsencode(place), self._newest_input_ns
        for name, text in self.texts.items():
            overwrite(self.directory / name, move_paths(text, self.built_in, new))
        hashes = self._hashes(ninja) if ninja else {}
        entries = (self._moved_entry(entry, new, time_ns) for entry in self.log.entries)
        entries_of_commands = tuple(
            replace(entry, command_hash=hashes.get(entry.output, entry.command_hash))
            for entry in entries
        )
        log = NinjaLog(self.log.version, entries_of_commands)
        overwrite(self.directory / LOG_FILE, format_log(log))
        deps = tuple(self._moved_record(record, new, time_ns) for record in self.deps)
        overwrite(self.directory / DEPS_FILE, format_deps(deps))
        for output in self._outputs():
            if output.exists():
                os.utime(output, ns=(time_ns, time_ns))

    def _hashes(self, ninja: str) -> dict[bytes, int]:
        hash_function = rapidhash_function()
        assert hash_function is not None, "who has ninja asked made sure of it"
        commands = commands_of(ninja, self.directory)
        return {output: hash_function(command) for output, command in commands.items()}

    def _moved_entry(self, entry: LogEntry, new: bytes, time_ns: int) -> LogEntry:
        return replace(entry, output=move_path(entry.output, self.built_in, new), mtime_ns=time_ns)

    def _moved_record(self, record: Record, new: bytes, time_ns: int) -> Record:
        if isinstance(record, PathRecord):
            return PathRecord(move_path(record.path, self.built_in, new))
        return replace(record, mtime_ns=time_ns)

    # --- inputs and outputs ----------------------------------------------------------------------

    def _paths(self) -> list[bytes]:
        """Return the paths of `deps` by number."""
        return [record.path for record in self.deps if isinstance(record, PathRecord)]

    def _recorded_inputs(self) -> set[bytes]:
        latest = {r.output: r.inputs for r in self.deps if isinstance(r, InputsRecord)}
        paths = self._paths()
        return {paths[number] for inputs in latest.values() for number in inputs}

    def _outputs(self) -> Iterator[Path]:
        paths = self._paths()
        recorded = {paths[r.output] for r in self.deps if isinstance(r, InputsRecord)}
        for path in recorded | {entry.output for entry in self.log.entries}:
            output = Path(os.path.normpath(self._here(path)))
            if self.directory not in output.parents:
                raise NotCurrent(f"its output {os.fsdecode(path)} lies outside its directory")
            yield output

    def _here(self, path: bytes) -> Path:
        """Return where a path, as the module's files have it, is on this node while staged."""
        inside = below(path, self.built_in)
        if inside is not None:
            return self.staged / os.fsdecode(inside)
        return self.directory / os.fsdecode(path)  # which an absolute path overrides

    @cached_property
    def _newest_input_ns(self) -> int:
        outputs = set(self._outputs())
        times = [1]  # ninja takes 0 for "missing"
        recorded = self._recorded_inputs()
        mentioned = {path for text in self.texts.values() for path in paths_in(text)}
        for path in recorded | mentioned:
            here = self._here(path)
            if here not in outputs:
                found = self._times_of(path, here)
                if path in recorded and not found:
                    raise NotCurrent(
                        f"{os.fsdecode(path)}, which it was compiled from, is not on this node: "
                        "it comes from another compile environment"
                    )
                times += found
        return max(times)

    def _times_of(self, path: bytes, here: Path) -> list[int]:
        """Return the mtimes [ns] of an input: here, and in the root if another one is there."""
        try:
            found = here.stat()
        except (OSError, ValueError):
            return []
        if not stat.S_ISREG(found.st_mode):
            return []
        times = [found.st_mtime_ns]
        inside = below(path, self.built_in)
        if inside is not None and self.directory not in here.parents:
            there = self.root / os.fsdecode(inside)
            if there.is_file():
                # Made by the engine, or kept by an earlier install; which one wins is not known.
                if not cmp(here, there, shallow=False):
                    raise NotCurrent(f"{there} stands there already and differs from its source")
                times.append(there.stat().st_mtime_ns)
        return times
