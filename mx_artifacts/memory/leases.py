"""Leases: which reader may read which region until when; granted, renewed, expired, released.

    active --ttl without renewal--> expired (quarantined) --grace--> freed
      ^------------- renew -----------|

An expired lease's memory is not reused before the grace period is over, so a reader that releases
or renews it within that time has read intact bytes and gets no error. Afterwards the memory may
hold other bytes, and the reader gets an error (LeaseExpiredError).
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from mx_artifacts.errors import (
    LeaseError,
    LeaseExpiredError,
    NoFreeSlotError,
    UnknownLeaseError,
)
from mx_artifacts.runtime.clock import Clock

T = TypeVar("T")

REMEMBERED_EXPIRED_LEASES = 1024
"""Maximum number of freed leases whose late release gets an error of its own; older ones are
unknown."""


MAX_LEASES_OF_SESSION = 4096
"""Maximum number of leases of one session: far above the reads of one target at once."""
MAX_PLAIN_LEASES = 16_384
"""Maximum number of leases of all peers without a session: a fleet of the reference's targets has
some thousand. A peer that takes all of them blocks only other peers without a session."""


@dataclass(frozen=True)
class Lease(Generic[T]):
    """The right to read what `detail` describes."""

    lease_id: str
    detail: T


@dataclass
class _Entry(Generic[T]):
    lease: Lease[T]
    session_id: str
    expires_at: float
    on_free: Callable[[], None]


def _random_id() -> str:
    return uuid.uuid4().hex


class LeaseTable(Generic[T]):
    """All leases of one source. All methods may be called from any thread.

    Nothing expires by itself: the owner calls `expire` at times. Each lease's `on_free` is called
    exactly once, without the table's lock, by the thread that freed it; it must not raise.
    """

    def __init__(
        self,
        clock: Clock,
        ttl_seconds: float,
        grace_seconds: float,
        new_id: Callable[[], str] = _random_id,
    ) -> None:
        """Use ids from `new_id`: unique over restarts too, so that no stranger's lease is freed."""
        self._clock = clock
        self._ttl_seconds = ttl_seconds
        self._grace_seconds = grace_seconds
        self._new_id = new_id
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry[T]] = {}
        self._of_holder: Counter[str] = Counter()
        self._expired: dict[str, None] = {}  # an ordered set
        self._closed = False

    def __len__(self) -> int:
        """Return how many leases hold memory, expired ones included."""
        with self._lock:
            return len(self._entries)

    def count_plain(self) -> int:
        """Return how many leases belong to no session."""
        with self._lock:
            return self._of_holder[""]

    def grant(self, session_id: str, detail: T, on_free: Callable[[], None]) -> Lease[T]:
        """Lease `detail` for one ttl to a session, or ("") to a plain peer that has none.

        Raises:
            LeaseError: the table is closed; `on_free` will not be called.
            NoFreeSlotError: this session, or all plain peers together, have too many; `on_free`
                will not be called.
        """
        lease = Lease(self._new_id(), detail)
        most = MAX_LEASES_OF_SESSION if session_id else MAX_PLAIN_LEASES
        with self._lock:
            if self._closed:
                raise LeaseError("the source is stopping and grants no lease")
            if self._of_holder[session_id] >= most:
                raise NoFreeSlotError(f"{most} leases are already held and not released")
            self._of_holder[session_id] += 1
            self._entries[lease.lease_id] = _Entry(lease, session_id, self._deadline(), on_free)
        return lease

    def grant_checked(
        self,
        session_id: str,
        detail: T,
        on_free: Callable[[], None],
        check_session: Callable[[str], None],
    ) -> Lease[T]:
        """Like `grant`, but free the lease if the session has ended, because nothing else would.

        `on_free` is called in any case. Raises what `check_session` raises, too.
        """
        try:
            lease = self.grant(session_id, detail, on_free)
        except BaseException:
            on_free()
            raise
        try:  # after the grant: a session that ends from here on frees it
            check_session(session_id)
        except BaseException:
            self.free_session(session_id)
            raise
        return lease

    def release(self, lease_id: str) -> Lease[T]:
        """End a lease, also an expired one within its grace period.

        Raises:
            LeaseExpiredError: its memory was freed after the grace period; what was read since
                then may be anything.
            UnknownLeaseError: never granted, released before, or forgotten.
        """
        with self._lock:
            entry = self._take_out(lease_id)
            if entry is None and lease_id in self._expired:
                raise LeaseExpiredError(
                    f"lease {lease_id} was not renewed, and its memory is used for something else "
                    "now",
                    hint="read the chunk again; renew leases of slow reads",
                )
        if entry is None:
            raise UnknownLeaseError(f"no lease has the id {lease_id!r}")
        entry.on_free()
        return entry.lease

    def renew_session(self, session_id: str) -> int:
        """Give all leases of a session a new ttl, expired ones within their grace too.

        Returns:
            How many; 0 for an unknown session and for "".
        """
        with self._lock:
            mine = self._of_session(session_id)
            for entry in mine:
                entry.expires_at = self._deadline()
        return len(mine)

    def free_session(self, session_id: str) -> int:
        """Free all leases of a session at once, without grace: its reader is dead.

        Returns:
            How many; 0 for an unknown session and for "".
        """
        with self._lock:
            mine = self._of_session(session_id)
            for entry in mine:
                self._take_out(entry.lease.lease_id)
        return _free(mine)

    def expire(self) -> int:
        """Free the leases whose grace period is over.

        Returns:
            How many were freed.
        """
        with self._lock:
            limit = self._clock.monotonic() - self._grace_seconds
            over = [entry for entry in self._entries.values() if entry.expires_at <= limit]
            for entry in over:
                self._take_out(entry.lease.lease_id)
                self._expired[entry.lease.lease_id] = None
            while len(self._expired) > REMEMBERED_EXPIRED_LEASES:
                del self._expired[next(iter(self._expired))]
        return _free(over)

    def close(self) -> None:
        """Refuse new leases and free all there are. Idempotent."""
        with self._lock:
            self._closed = True
            entries = list(self._entries.values())
            self._entries.clear()
            self._of_holder.clear()
        _free(entries)

    def _take_out(self, lease_id: str) -> _Entry[T] | None:
        entry = self._entries.pop(lease_id, None)
        if entry is not None:
            self._of_holder[entry.session_id] -= 1
            if not self._of_holder[entry.session_id]:
                del self._of_holder[entry.session_id]
        return entry

    def _deadline(self) -> float:
        return self._clock.monotonic() + self._ttl_seconds

    def _of_session(self, session_id: str) -> list[_Entry[T]]:
        if not session_id or not self._of_holder[session_id]:
            return []
        return [entry for entry in self._entries.values() if entry.session_id == session_id]


def _free(entries: Iterable[_Entry[T]]) -> int:
    """Call each `on_free`, all of them even if one raises."""
    with contextlib.ExitStack() as calls:
        freed = [calls.callback(entry.on_free) for entry in entries]
    return len(freed)
