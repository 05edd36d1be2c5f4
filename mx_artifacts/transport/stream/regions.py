"""Decides which ranges of an agent's memory a token allows to read."""

from __future__ import annotations

import hmac
import secrets
import threading
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence

from mx_artifacts.errors import RegistrationError
from mx_artifacts.transport.addresses import PlacedRegion
from mx_artifacts.transport.stream.frames import TOKEN_BYTES, proof_of

_PAGE_BYTES = 4096
_TOP = 1 << 63
"""Addresses that are made up stay below, so that address + length never exceeds 64 bits."""


class StreamRegion(PlacedRegion):
    """Registered memory. Its address is made up, unless the caller states one: it is a name only.

    What is being sent keeps its own view, so closing a region never frees memory under a sender.
    """

    def __init__(self, table: RegionTable, view: memoryview, addr: int, serial: int) -> None:
        super().__init__(addr, view.nbytes)
        self.view = view
        self.serial = serial
        self._table = table

    def close(self) -> None:
        """Deregister; later reads of it are refused."""
        self._table.remove(self)


class RegionTable:
    """The regions of one agent, and its tokens. Any thread.

    A token grants access to the regions that were registered before it was made, and to no later
    ones. A reader must also know the address of a region, which is random and is sent only with a
    lease.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._regions: dict[int, StreamRegion] = {}
        self._addresses: list[int] = []
        self._serial = 0
        self._tokens: dict[int, bytes] = {}

    def __contains__(self, region: StreamRegion) -> bool:
        return self._regions.get(region.addr) is region

    def add(self, view: memoryview, addr: int | None) -> StreamRegion:
        """Register the bytes `view` at `addr`; None: at a random address.

        Raises:
            RegistrationError: there is already a region at that address.
        """
        with self._lock:
            at = self._free_address(view.nbytes) if addr is None else addr
            if self._overlaps(at, view.nbytes):
                raise RegistrationError(f"a region at {at:#x} is already registered")
            self._serial += 1
            region = StreamRegion(self, view, at, self._serial)
            self._regions[at] = region
            insort(self._addresses, at)
        return region

    def _free_address(self, length: int) -> int:
        while True:
            at = secrets.randbelow((_TOP - length) // _PAGE_BYTES) * _PAGE_BYTES
            if at and not self._overlaps(at, length):
                return at

    def _overlaps(self, at: int, length: int) -> bool:
        place = bisect_right(self._addresses, at)
        before = self._addresses[place - 1 : place] if place else []
        after = self._addresses[place : place + 1]
        return any(at < b + self._regions[b].length for b in before) or any(
            a < at + length for a in after
        )

    def remove(self, region: StreamRegion) -> None:
        """Forget a region. Idempotent."""
        with self._lock:
            if region in self:
                del self._regions[region.addr]
                self._addresses.remove(region.addr)
                region.view.release()  # what is cut from it stays valid, and keeps the memory

    def token(self) -> tuple[bytes, int]:
        """Return a token that grants all regions registered until now, and its serial.

        The serial is that of the region registered last.
        """
        with self._lock:
            if self._serial not in self._tokens:
                self._tokens[self._serial] = secrets.token_bytes(TOKEN_BYTES)
            return self._tokens[self._serial], self._serial

    def is_granted(self, serial: int, proof: bytes, nonce: bytes) -> bool:
        """Return whether `proof` was made of `nonce` with the token of that number."""
        token = self._tokens.get(serial)
        return token is not None and hmac.compare_digest(proof, proof_of(token, nonce))

    def find(self, ranges: Iterable[tuple[int, int]], grant: int) -> Sequence[memoryview] | None:
        """Return views of (address, length) `ranges`; None where one is not granted."""
        found = []
        with self._lock:
            for addr, length in ranges:
                place = bisect_right(self._addresses, addr)
                if not place or not length:
                    return None
                region = self._regions[self._addresses[place - 1]]
                start = addr - region.addr
                if start + length > region.length or region.serial > grant:
                    return None
                found.append(region.view[start : start + length])
        return found

    def clear(self) -> None:
        """Forget all regions and tokens."""
        with self._lock:
            for region in self._regions.values():
                region.view.release()
            self._regions.clear()
            self._addresses.clear()
            self._tokens.clear()
