"""What a worker server needs of what it serves: the artifacts of today, the tensors of tomorrow."""

from __future__ import annotations

from typing import Protocol

import grpc


class ServedService(Protocol):
    """Something that a `WorkerServer` offers on its port. Any thread."""

    @property
    def max_waiting_calls(self) -> int:
        """Maximum number of calls that wait at once, each in a thread of the server's."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether it grants nothing any more."""
        ...

    def add_to(self, server: grpc.Server) -> None:
        """Add its gRPC services; called once, before the server starts."""
        ...

    def count_readers(self) -> int:
        """Return how many targets read from it now."""
        ...

    def count_leases(self) -> int:
        """Return how many leases there are, which a worker that stops waits for."""
        ...

    def expire_leases(self) -> int:
        """End leases that were not renewed; called every second. Returns how many they were."""
        ...

    def drain(self) -> None:
        """Grant no more leases; those there are may be used and released. Idempotent."""
        ...

    def close(self) -> None:
        """Free everything, and wake calls that wait. Idempotent."""
        ...
