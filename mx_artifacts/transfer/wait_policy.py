"""How long a reader waits for its source."""

from __future__ import annotations

from typing import Protocol

from mx_artifacts.transport.base import PendingRead


class WaitPolicy(Protocol):
    """Decides how long a reader waits for its source. A wait of an ended transfer raises."""

    def remaining(self) -> float:
        """Return for how long a call to the source may last [s]."""
        ...

    def pause(self, seconds: float, waited_seconds: float = 0.0) -> None:
        """Wait `seconds`; a call before took `waited_seconds` and was not answered.

        Raises:
            MxArtifactsError: the transfer has ended or the source is given up.
        """
        ...

    def waits(self) -> None:
        """Called before a blocking call, so that the pipeline may start its remaining threads."""
        ...

    def finish(self, read: PendingRead) -> None:
        """Wait until `read` has its bytes.

        Raises:
            MxArtifactsError: as `PendingRead.wait`, or because the read is given up.
        """
        ...
