"""Memory that a transport can register: anonymous pages that no fork shares."""

from __future__ import annotations

import mmap

from mx_artifacts.errors import RegistrationError


class Buffer:
    """`length` writable bytes, zero at first, at a page boundary. Free with `close`."""

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
        self.length = length
        self.view = memoryview(self._pages)

    def close(self) -> None:
        """Unmap. Idempotent. While someone else still holds a view, its last holder unmaps."""
        self.view.release()
        try:
            self._pages.close()
        except BufferError:
            return  # the pages go when the last view of them does


def allocate(length: int) -> Buffer:
    """Return a new buffer of `length` bytes [> 0].

    Raises:
        RegistrationError: the machine has no memory for it.
    """
    return Buffer(length)
