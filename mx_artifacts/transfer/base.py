"""What a transfer moves and which parts it has: extents, sources, readers and sinks.

The other modules of this package move extents of any data. `artifact/` is the part that knows
artifacts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from mx_artifacts.transfer.wait_policy import WaitPolicy
from mx_artifacts.transport.base import DeviceMemory, LocalMemory, PendingRead, Region


class Extent(Protocol):
    """Bytes that are read and verified at once. Compared and hashed by identity."""

    @property
    def length(self) -> int:
        """Size [bytes > 0]."""
        ...


E = TypeVar("E", bound=Extent)
E_contra = TypeVar("E_contra", bound=Extent, contravariant=True)


@dataclass(frozen=True)
class SourceAddress:
    """Where a source listens (host:port), and the identity under which it serves."""

    endpoint: str
    mx_source_id: str

    @property
    def host(self) -> str:
        """The endpoint's host."""
        return self.endpoint.rpartition(":")[0].strip("[]")


@dataclass(frozen=True)
class Destination:
    """Registered memory that an extent is read into: `memory` is `region` from `offset` on."""

    region: Region
    offset: int
    memory: LocalMemory

    @property
    def view(self) -> memoryview:
        """The bytes, where they are in DRAM. Raises TypeError for memory of a device."""
        if isinstance(self.memory, DeviceMemory):
            raise TypeError(f"{self.memory} cannot be read by the host")
        return self.memory


class Reader(Protocol[E_contra]):
    """Reads extents from one source, one after the other. Used by one thread."""

    def read(self, extent: E_contra, into: Destination, pending: list[PendingRead]) -> int:
        """Fill `into` with the extent's bytes; append the reads that use it to `pending`.

        Returns how many bytes were carried, which may be fewer than the extent has.
        """
        ...

    def release(self) -> bool:
        """Give back leases, if there are any; return False if one had expired."""
        ...

    def still_holds(self) -> bool:
        """Return whether the bytes read last were leased until now; give back such a lease.

        Raises:
            LeaseExpiredError: the lease is one for everything, and has expired.
        """
        ...


class ReadableSource(Protocol[E]):
    """A peer that has some or all extents. Any thread, except for `close`."""

    @property
    def address(self) -> SourceAddress: ...

    @property
    def is_complete(self) -> bool:
        """Whether it has every extent."""
        ...

    @property
    def is_detached(self) -> bool:
        """Whether it has ended our session, though it may be well."""
        ...

    def open(self, *, serves_on: bool) -> None:
        """Connect, and lease everything that can be leased at once. Idempotent.

        `serves_on`: this target serves to others what it reads.

        Raises:
            NoFreeSlotError: it is busy; try again later.
            MxArtifactsError: it cannot be used.
        """
        ...

    def refresh(self) -> bool:
        """Ask a source that is not complete what it has by now; return whether that has changed.

        Raises as `open`.
        """
        ...

    def has(self, extent: E) -> bool:
        """Return whether all of `extent` can be read from it now."""
        ...

    def batch_of(self, first: E, waiting: Sequence[E]) -> Sequence[E]:
        """Return those of `waiting`, `first` among them, that one reader should read in turn."""
        ...

    def reader(self, first: E, wait: WaitPolicy) -> AbstractContextManager[Reader[E]]:
        """Lend a reader for `first` and the extents after it."""
        ...

    def check_session(self) -> None:
        """Raise PeerLostError if the source has ended our session. Does not ask it."""
        ...

    def check_answers(self, timeout_seconds: float | None = None) -> None:
        """Ask the source by its smallest call. Raises as `open`."""
        ...

    def report_damage(self, extent: E) -> str:
        """Report to the source that `extent` arrived damaged; return its answer, or "".

        It does not raise, and takes at most some seconds.
        """
        ...

    def hang_up(self) -> None:
        """Let calls to the source that are under way fail."""
        ...

    def close(self) -> None:
        """Disconnect. Idempotent; no thread may read from it any more."""
        ...


Connect = Callable[[SourceAddress], ReadableSource[E]]
"""Returns the source at an address, not opened yet; raises if the address makes no sense."""


class Sink(Protocol[E_contra]):
    """Where extents go. Any thread; each extent is written once."""

    @property
    def waits(self) -> bool:
        """Whether `write` waits, as for a disk, while other threads could use the core."""
        ...

    def destination_of(self, extent: E_contra) -> Destination | None:
        """Return memory of the sink for `extent`, or None if it takes a copy in `write`.

        With a destination the bytes are read to where they stay; nothing copies them. They may be
        wrong until `write` is called, and are read again then.
        """
        ...

    def damage(self, extent: E_contra, stored: Destination) -> str:
        """Return what of an extent, read into `stored`, is not as it should be, or "".

        The sink's, and not the extent's: it knows how to look into its own memory.
        """
        ...

    def write(self, extent: E_contra, stored: Destination) -> None:
        """Take a verified extent, in its destination or in a buffer that is reused afterwards.

        Raises:
            WorkStopped: the transfer has ended.
            MxArtifactsError: the sink cannot take it; this ends the transfer.
        """
        ...

    def keep_until(self, is_done: Callable[[], bool]) -> None:
        """Called when a transfer ends while a read may still write into a destination.

        The sink keeps its memory mapped and registered until `is_done()` returns True.
        """
        ...

    def stop(self) -> None:
        """Let calls of `write` that wait fail: the transfer has ended. Idempotent."""
        ...
