"""The memory into which a bundle is packed: what this package needs from its provider."""

from __future__ import annotations

from typing import Protocol


class BundleMemory(Protocol):
    """Writable bytes, zero at first, for one bundle. Any thread."""

    @property
    def view(self) -> memoryview:
        """All of it."""
        ...

    def written(self, offset: int, length: int) -> None:
        """Called when this range will not change again, so that its pages may leave the memory."""
        ...

    def cut(self, length: int) -> None:
        """Keep the first `length` bytes only."""
        ...

    def close(self) -> None:
        """Free it. Idempotent."""
        ...
