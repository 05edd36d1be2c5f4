"""An entry as a cache kind sees it, packed or existing, to decide whether it is committed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple, Protocol

from mx_artifacts.errors import UnsafePathError
from mx_artifacts.filesystem.beneath import Directory

MAX_READ_BYTES = 8 * 1024 * 1024
"""Group files and manifests have kilobytes; vLLM's largest index has one or two megabytes."""

COMMIT_SECONDS = 1.0
"""An entry that changed no longer ago than this may be about to be committed, so it is waited for.
Compilers write the files that belong together, and the one that commits them, within milliseconds.
"""

_READ_BYTES = 1024 * 1024
_LOCK_FLAGS = os.O_RDONLY | os.O_NONBLOCK


class EntryFile(NamedTuple):
    """A file of an entry: its size, when it was last written, and where its content begins.

    `offset` is that in the bundle, 0 in a file of its own.
    """

    size: int
    mtime_ns: int
    offset: int = 0


class ReadContent(Protocol):
    """Reads the content of an entry's files, from wherever they are."""

    def __call__(self, path: str, count: int, offset: int) -> bytes:
        """Return up to `count` bytes of the file `path`, beginning at `offset`."""
        ...


class EntryView:
    """An entry as it is in the bundle, so that what is judged is what is packed, or in a cache.

    Paths are relative to the cache root and "/"-separated. Valid during the call it is given to;
    not thread-safe.
    """

    def __init__(
        self,
        path: str,
        files: Mapping[str, EntryFile],
        *,
        content: ReadContent,
        root: Directory,
        age_seconds: float,
    ) -> None:
        self.path = path
        self.files = files
        self.age_seconds = age_seconds
        """Since any of its files changed, a rename included; infinite where that is unknown."""
        self._content = content
        self._root = root

    @cached_property
    def names_by_directory(self) -> Mapping[str, Sequence[str]]:
        """The names of the files directly in each directory, sorted."""
        names: dict[str, list[str]] = {}
        for path in sorted(self.files):
            directory, _, name = path.rpartition("/")
            names.setdefault(directory, []).append(name)
        return names

    def read(self, path: str, count: int = MAX_READ_BYTES, offset: int = 0) -> bytes:
        """Return up to `count` bytes of the file `path`, from `offset` on.

        Raises:
            KeyError: the entry has no such file.
            OSError: it cannot be read; never for a file that is packed.
        """
        file = self.files[path]
        count = min(count, MAX_READ_BYTES, max(0, file.size - offset))
        return self._content(path, count, file.offset + offset)

    def sha256(self, path: str) -> str:
        """Return the SHA-256 of the file `path` in hexadecimal.

        Raises:
            KeyError, OSError: as `read`.
        """
        digest = sha256()
        for offset in range(0, self.files[path].size, _READ_BYTES):
            digest.update(self.read(path, _READ_BYTES, offset))
        return digest.hexdigest()

    def lock_is_held(self, path: str) -> bool:
        """Return whether a process holds the flock of the file `path` in the cache itself.

        Compilers build under such locks. A lock that does not exist or cannot be tested counts as
        free: the times of the entry's files still show whether they are being written.
        """
        if ".." in path.split("/"):
            raise UnsafePathError(f"lock {path!r} is not inside the cache root")
        with suppress(OSError):
            descriptor = self._root.open(path, _LOCK_FLAGS)
            try:
                # Shared, so that two publishers do not see each other; let go of at once.
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
        return False
