"""Ballots of groups in the server's own memory."""

from __future__ import annotations

from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock


class MemoryBallots:
    """A dictionary. No method awaits anything, so each is atomic on its event loop."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._ballots: dict[str, tuple[bytes, float]] = {}
        """By group: the text, and the monotonic time [s] from which it counts as forgotten."""

    async def get_ballots(self, group: str) -> bytes | None:
        """Return a group's ballots, unless they are too old."""
        ballots, until = self._ballots.get(group, (None, 0.0))
        return ballots if self._clock.monotonic() < until else None

    async def replace_ballots(
        self, group: str, expected: bytes | None, ballots: bytes, ttl_seconds: float
    ) -> bool:
        """Write the ballots of a group unless they were changed meanwhile; delete old ballots."""
        now = self._clock.monotonic()
        self._ballots = {name: kept for name, kept in self._ballots.items() if now < kept[1]}
        if self._ballots.get(group, (None, 0.0))[0] != expected:
            return False
        self._ballots[group] = (ballots, now + ttl_seconds)
        return True
