"""ninja's build log, `.ninja_log`: which outputs were built, when, and by which command.

A text file: `# ninja log v<N>`, then a line per finished output, tab-separated: start and end of
the command (ms since ninja started), the time that counts as the output's (ns), its path, and a
hash of the command line in hex. Lines are appended; the last one of an output counts (ninja's
manual, "The Ninja log"). The hash is rapidhash in version 7, the only one that is adapted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

RAPIDHASH_VERSION = 7

MAX_LOG_BYTES = 8 << 20
"""Maximum size of the file [bytes]. Real ones have below 1 MB."""

MAX_ENTRIES = 100_000
"""Maximum number of entries. Real files have a few hundred."""

_HEADER = re.compile(rb"# ninja log v(\d{1,4})")
_LINE = re.compile(rb"(\d{1,10})\t(\d{1,10})\t(\d{1,20})\t([^\t\n]+)\t([0-9a-f]{1,16})")


@dataclass(frozen=True)
class LogEntry:
    """One output; times as in the file, `mtime_ns` since the Unix epoch."""

    start_ms: int
    end_ms: int
    mtime_ns: int
    output: bytes
    command_hash: int


@dataclass(frozen=True)
class NinjaLog:
    """A whole log; an output that was built more than once has more than one entry."""

    version: int
    entries: tuple[LogEntry, ...]

    def by_output(self) -> dict[bytes, LogEntry]:
        """Return the last entry of each output."""
        return {entry.output: entry for entry in self.entries}


def parse_log(content: bytes) -> NinjaLog:
    """Read a log. Raises ValueError: it is damaged, too long, or of another format."""
    if len(content) > MAX_LOG_BYTES or content.count(b"\n") > MAX_ENTRIES:
        raise ValueError(".ninja_log is too long")
    header, *lines = content.split(b"\n")
    found = _HEADER.fullmatch(header)
    if found is None or lines[-1:] != [b""]:
        raise ValueError(".ninja_log is damaged")
    return NinjaLog(int(found[1]), tuple(map(_entry, lines[:-1])))


def _entry(line: bytes) -> LogEntry:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f".ninja_log is damaged: {line[:80]!r}")
    start, end, mtime, output, command_hash = found.groups()
    return LogEntry(int(start), int(end), int(mtime), output, int(command_hash, 16))


def format_log(log: NinjaLog) -> bytes:
    """Return the file of `log`."""
    lines = [b"# ninja log v%d\n" % log.version]
    lines += [
        b"%d\t%d\t%d\t%s\t%x\n" % (e.start_ms, e.end_ms, e.mtime_ns, e.output, e.command_hash)
        for e in log.entries
    ]
    return b"".join(lines)
