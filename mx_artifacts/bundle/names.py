"""The names that a bundle may contain; the packer skips names that the scanner would refuse."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from mx_artifacts.core.foreign_text import shown

MAX_PATH_BYTES = 4096
"""Linux's PATH_MAX."""
MAX_PART_BYTES = 255
"""Linux's NAME_MAX."""
MAX_DEPTH = 64
"""Parts of a path. Caches have about ten; a path of thousands implies as many directories."""
_ORDINARY = re.compile(rf"(?:[\w+=@-][\w+=@.-]*/){{0,{MAX_DEPTH - 1}}}[\w+=@-][\w+=@.-]*", re.ASCII)
"""Parts without a leading dot: nothing is wrong with these but, perhaps, their length."""


def path_fault(path: str) -> str | None:
    """Say why `path` may not be a member's path, or return None if it may.

    A good path is relative, "/"-separated UTF-8 without empty, "." and ".." parts. A backslash is
    an ordinary character, as it is to Linux. Control characters are refused, since no cache has
    them and names end up on terminals and in logs.
    """
    if len(path) <= MAX_PART_BYTES and _ORDINARY.fullmatch(path):
        return None  # as nearly all are
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "name is not UTF-8"
    if len(encoded) > MAX_PATH_BYTES:
        return f"path is longer than {MAX_PATH_BYTES} bytes"
    if path.startswith("/"):
        return "path is absolute"
    if not path.isprintable() and any(unicodedata.category(char) == "Cc" for char in path):
        return "name holds a NUL or another control character"
    parts = path.split("/")
    if len(parts) > MAX_DEPTH:
        return f"path is deeper than {MAX_DEPTH} directories"
    for part in parts:
        if part in ("", ".", ".."):
            return f"path has the part '{shown(part)}'"
        if len(part) > MAX_PART_BYTES // 4 and len(part.encode()) > MAX_PART_BYTES:
            return f"name is longer than {MAX_PART_BYTES} bytes"
    return None


def all_ordinary(paths: Sequence[str]) -> bool:
    """Return whether each path is one that `path_fault` knows to be good at first sight."""
    return max(map(len, paths), default=0) <= MAX_PART_BYTES and all(
        map(_ORDINARY.fullmatch, paths)
    )


def fold(name: str) -> str:
    """Return the form in which names are compared: without case, in one Unicode form.

    Names with the same form are the same file on some file systems, and humans cannot distinguish
    them.
    """
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def printable(path: str) -> str:
    """Return `path` with undecodable bytes and unprintable characters escaped, for messages."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
