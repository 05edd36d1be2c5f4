"""The files a transfer writes, which exist in the end or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from mx_artifacts.core.manifest import ArtifactManifest, ManifestChunk
from mx_artifacts.errors import InstallError, NoSpaceError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class StagedFiles:
    """Empty files of the right length, written chunk by chunk. `write` is thread-safe.

    A context manager: leaving it by an exception removes what it created.
    """

    def __init__(
        self, directory: Path, manifest: ArtifactManifest, names: Mapping[str, str]
    ) -> None:
        """Create nothing yet. `names` maps manifest paths to names in `directory`."""
        self.paths = {path: directory / name for path, name in names.items()}
        self._directory = directory
        self._manifest = manifest
        self._created: list[Path] = []
        self._descriptors: list[int] = []

    def __enter__(self) -> StagedFiles:
        """Create the files.

        Raises:
            NoSpaceError: the file system has no room for all of them.
            InstallError: one exists already, or cannot be created.
        """
        try:
            with self._translated():
                self._directory.mkdir(parents=True, exist_ok=True)
                self._check_space()
                for file in self._manifest.files:
                    self._create(self.paths[file.path], file.size)
        except BaseException:
            self._close()
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_exception: object) -> None:
        complete = False
        try:
            with self._translated():  # some file systems report a lack of space only here
                self._close()
            complete = kind is None
        finally:
            if not complete:
                self._remove()

    def write(self, chunk: ManifestChunk, data: memoryview) -> None:
        """Write a chunk's bytes to their place.

        Raises:
            NoSpaceError, InstallError
        """
        offset = chunk.file_offset
        try:
            descriptor = self._descriptors[chunk.file_index]
        except IndexError:
            raise InstallError("the transfer is over") from None
        with self._translated():
            while data:
                written = os.pwrite(descriptor, data, offset)
                data, offset = data[written:], offset + written

    def _check_space(self) -> None:
        """Fail before the first byte rather than after the last that fits."""
        usage = os.statvfs(self._directory)
        free = usage.f_bavail * usage.f_frsize
        if self._manifest.total_size > free:
            raise NoSpaceError(
                f"{self._directory} has {free} bytes free, the artifact needs "
                f"{self._manifest.total_size}"
            )

    def _create(self, path: Path, size_bytes: int) -> None:
        # O_EXCL also refuses a link that stands there, wherever it points to.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptors.append(os.open(path, flags, 0o600))
        self._created.append(path)
        os.ftruncate(self._descriptors[-1], size_bytes)

    def _close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _remove(self) -> None:
        for path in self._created:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError as error:
            raise InstallError(
                f"{error.filename} exists already", hint="give an empty directory for the transfer"
            ) from error
        except OSError as error:
            kind = NoSpaceError if error.errno in _NO_SPACE else InstallError
            raise kind(f"cannot write to {self._directory}: {error.strerror}") from error
