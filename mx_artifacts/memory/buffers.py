"""Memory for bundles and chunks: anonymous pages that can be registered, or an unnamed file."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from mx_artifacts.errors import ConfigurationError, NoSpaceError, RegistrationError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

_HUGE_PAGE_BYTES = 2 << 20
"""Of x86-64, and of ARM with small pages of 4 KiB."""
_HUGE_FROM_BYTES = 32 << 20
"""Buffers of chunks are smaller; they live long, and are filled again and again."""
_SLOW_SECONDS = 0.001
"""Time to get the same amount of memory in small pages. A huge page takes a fifth of this time if
the kernel has one, and up to 7 ms if the kernel must build it from fragments or get it back from a
hypervisor."""


class Buffer:
    """`length` writable bytes, zero at first, at a page boundary. Free with `close`.

    No fork shares them, and a transport can register them.
    """

    def __init__(self, length: int) -> None:
        if length <= 0:
            raise ValueError(f"a buffer of {length} bytes makes no sense")
        try:
            self._pages = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError) as error:
            raise RegistrationError(
                f"no memory for a buffer of {length} bytes: {error}",
                hint="lower the number of slots, the chunk size or the resident budget",
            ) from error
        if hasattr(mmap, "MADV_DONTFORK"):  # else a fork would copy pages that a NIC writes to
            self._pages.madvise(mmap.MADV_DONTFORK)
        self.view = memoryview(self._pages)
        if length >= _HUGE_FROM_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
            self._take_huge_pages()

    def _take_huge_pages(self) -> None:
        """Fill these bytes with huge pages until the kernel takes long to provide one.

        Getting small pages one by one takes longer than reading a cache into them. The kernel does
        not say whether it has huge pages, so each page is tried; the rest are small pages.
        """
        try:
            self._pages.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel without them
            return
        for offset in range(0, len(self.view), _HUGE_PAGE_BYTES):
            started = time.thread_time()  # not counting what others do meanwhile
            self.view[offset] = 0
            if time.thread_time() - started > _SLOW_SECONDS:
                self._pages.madvise(mmap.MADV_NOHUGEPAGE)
                return

    @property
    def length(self) -> int:
        return len(self.view)

    def cut(self, length: int) -> None:
        """Keep the first `length` bytes [> 0] only; the view becomes as long."""
        self.view = self.view[:length]

    def written(self, offset: int, length: int) -> None:
        """Do nothing: these bytes have no other place than memory."""

    def close(self) -> None:
        """Unmap. Idempotent. While someone else still holds a view, its last holder unmaps."""
        self.view.release()
        with suppress(BufferError):  # then the pages go when the last view of them does
            self._pages.close()


class FileBuffer:
    """Like `Buffer`, but in a file without a name: for bundles that are too large for the memory.

    The file allocates its space at once, and vanishes when the process ends in any way. Read it
    with `read_into`; write it through the view.
    """

    def __init__(self, directory: Path, length: int) -> None:
        """Make the file in `directory`, and that too where it is missing.

        Raises:
            NoSpaceError: the file system has no room for it.
            ConfigurationError: nothing can be written there.
        """
        if length <= 0:
            raise ValueError(f"a buffer of {length} bytes makes no sense")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            found = os.statvfs(directory)
            if found.f_bavail * found.f_frsize < length:  # else all of it would be tried to be had
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            with ExitStack() as on_failure:
                self._file = on_failure.enter_context(
                    tempfile.TemporaryFile(dir=directory, buffering=0)
                )
                os.posix_fallocate(self._file.fileno(), 0, length)
                self._pages = mmap.mmap(self._file.fileno(), length)
                on_failure.pop_all()
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise NoSpaceError(
                    f"{directory} has no room for a bundle of {length} bytes",
                    hint=f"free space on the file system of {directory}, or set --bundle-root",
                ) from error
            raise ConfigurationError(
                f"no bundle can be written to {directory}: {error.strerror}",
                hint="name another directory with --bundle-root",
            ) from error
        self.view = memoryview(self._pages)

    @property
    def length(self) -> int:
        return len(self.view)

    def cut(self, length: int) -> None:
        """Keep the first `length` bytes [> 0] only; the view becomes as long."""
        self.view = self.view[:length]

    def written(self, offset: int, length: int) -> None:
        """Take the whole pages of this range out of the process's memory, but not its file."""
        page = mmap.PAGESIZE
        first, end = -(-offset // page) * page, (offset + length) // page * page
        if first < end:
            self._pages.madvise(mmap.MADV_DONTNEED, first, end - first)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill `target` with the bytes from `offset` on. Raises OSError, also where too few."""
        while target:
            count = os.preadv(self._file.fileno(), [target], offset)
            if not count:
                raise OSError(errno.EIO, "a bundle's file is shorter than the bundle")
            target, offset = target[count:], offset + count

    def close(self) -> None:
        """Unmap and give the file's space back. Idempotent."""
        self.view.release()
        with suppress(BufferError):
            self._pages.close()
        self._file.close()


Bundle = Buffer | FileBuffer
"""Holds a bundle's bytes."""


def allocate(length: int) -> Buffer:
    """Return a new buffer of `length` bytes [> 0].

    Raises:
        RegistrationError: the machine has no memory for it.
    """
    return Buffer(length)
