"""A budget for the memory of a process's bundles; further bundles are in files."""

from __future__ import annotations

import threading
from pathlib import Path

from mx_artifacts.memory.buffers import Buffer, FileBuffer


class _BudgetedBuffer(Buffer):
    def __init__(self, length: int, budget: BundleBudget) -> None:
        super().__init__(length)
        self._budget = budget
        self._charged = length

    def close(self) -> None:
        charged, self._charged = self._charged, 0
        self._budget.give_back(charged)
        super().close()


class BundleBudget:
    """Lends memory for bundles up to a limit, and files beyond it. Any thread."""

    def __init__(self, limit_bytes: int, directory: Path) -> None:
        """Files are made in `directory`, when one is needed."""
        self._limit_bytes = limit_bytes
        self._directory = directory
        self._used_bytes = 0
        self._lock = threading.Lock()

    def allocate(self, length: int) -> Buffer | FileBuffer:
        """Lend `length` bytes [> 0] until they are closed.

        Raises:
            RegistrationError, NoSpaceError, ConfigurationError
        """
        with self._lock:
            fits = self._used_bytes + length <= self._limit_bytes
            self._used_bytes += length if fits else 0
        if not fits:
            return FileBuffer(self._directory, length)
        try:
            return _BudgetedBuffer(length, self)
        except BaseException:
            self.give_back(length)
            raise

    def give_back(self, length: int) -> None:
        """Called when memory was freed."""
        with self._lock:
            self._used_bytes -= length
