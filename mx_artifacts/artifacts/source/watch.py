"""Decides when to seal a kind's roots again: they have changed since the last seal, and settled."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mx_artifacts.artifacts.source.readiness import signature_of
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock


class RootsWatch:
    """Compares the roots' signature at each look with that of the look before and of the seal.

    A look costs a walk over the roots; no file is opened.
    """

    def __init__(
        self,
        roots: Iterable[tuple[Path, PackRules]],
        *,
        settle_seconds: float = 0.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Look for the first time; so make it before what it watches is sealed.

        Roots have settled when a look finds them as the look before did, and they have been so
        for `settle_seconds`.
        """
        self._roots = tuple(roots)
        self._settle_seconds = settle_seconds
        self._clock = clock
        self._seen = signature_of(self._roots)
        self._sealed = self._seen
        self._must = False
        self._since = self._left_at = clock.monotonic()

    @property
    def holds_files(self) -> bool:
        """Whether the last look found something that would be shipped."""
        return self._seen.file_count > 0

    @property
    def unsealed_seconds(self) -> float:
        """For how long looks have found the roots other than they were sealed."""
        return self._clock.monotonic() - self._left_at if self._wanted else 0.0

    @property
    def _wanted(self) -> bool:
        return self._must or self._seen != self._sealed

    def due(self) -> bool:
        """Look; return whether the roots differ from what was sealed and have settled."""
        wanted, before = self._wanted, self._seen
        self._seen, now = signature_of(self._roots), self._clock.monotonic()
        if self._seen != before:
            self._since = now
        if not wanted:
            self._left_at = now
        settled = self._seen == before and now - self._since >= self._settle_seconds
        return self._wanted and settled

    def sealed(self, *, settled: bool = True) -> None:
        """Take what the last look saw for sealed; with `settled` false, as unfinished.

        What had not settled may be complete now without another sign of it, so that is sealed
        once more.
        """
        self._sealed = self._seen
        self._must = not settled
        self._left_at = self._clock.monotonic()
