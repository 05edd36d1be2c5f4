"""Absolute paths in ninja's files: finds them and the root of their origin, and rewrites them.

Only plain paths are handled: a path that ninja's syntax or the shell would quote is not rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mx_artifacts.core.foreign_text import shown

_PLAIN = re.compile(rb"/[^\s$:|'\"\\]*")
# What may be before an absolute path: nothing, a separator, or the letter of -I, -L, -B or -F.
_STARTS = rb"(?:(?<![^\s=:,'\"|@])|(?<=-[ILBF]))"


def paths_in(text: bytes) -> set[bytes]:
    """Return the absolute paths that `text`, a build file or dependency file, refers to."""
    return set(re.findall(_STARTS + _PLAIN.pattern, text))


def is_plain(path: bytes) -> bool:
    """Return whether `path` can be written into ninja's files as it is."""
    return _PLAIN.fullmatch(path) is not None


def root_of(module: bytes, paths: Iterable[bytes]) -> bytes | None:
    """Return the root in which the directory `module` (relative to the root) was built.

    None when no path refers to that directory: it can be anywhere then.

    Raises:
        ValueError: paths refer to that directory in several roots.
    """
    inside = b"/" + module + b"/"
    ends = ((path, (path + b"/").rfind(inside)) for path in paths)
    roots = {path[:end] for path, end in ends if end > 0}
    if len(roots) > 1:
        listed = ", ".join(sorted(shown(root) for root in roots))
        raise ValueError(f"it refers to itself in several places: {listed}")
    return next(iter(roots), None)


def below(path: bytes, root: bytes | None) -> bytes | None:
    """Return `path` relative to `root`, or None if it is not below it."""
    if root is None or not path.startswith(root + b"/"):
        return None
    return path[len(root) + 1 :]


def move_path(path: bytes, old: bytes | None, new: bytes) -> bytes:
    """Return `path` with `new` in place of `old`, if it is below `old`."""
    inside = below(path, old)
    return path if inside is None else new + b"/" + inside


def move_paths(text: bytes, old: bytes | None, new: bytes) -> bytes:
    """Rewrite every path at or below the root `old` in `text` for the root `new`."""
    if old is None or old == new:
        return text
    found = re.compile(_STARTS + re.escape(old) + rb"(?=/|$|[\s:,'\"|])", re.MULTILINE)
    return found.sub(lambda _: new, text)
