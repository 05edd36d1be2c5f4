"""Sources and sinks that a test scripts, for the parts of a transfer that know no artifacts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from mx_artifacts.errors import MxArtifactsError, ReadTimeoutError
from mx_artifacts.transfer.base import Destination, SourceAddress
from mx_artifacts.transfer.wait_policy import WaitPolicy
from mx_artifacts.transport.base import PendingRead

WAIT_SECONDS = 30.0
"""For what another thread is about to do; a test that waits so long has failed."""


@dataclass(frozen=True, eq=False)
class Piece:
    """An extent: `length` bytes that all are `number`."""

    number: int
    length: int = 10

    @property
    def content(self) -> bytes:
        return bytes([self.number]) * self.length


def pieces(count: int) -> list[Piece]:
    """Return so many pieces."""
    return [Piece(number) for number in range(count)]


class MadeUpRead:
    """A read under way: it ends when the test says so; nobody waits for it meanwhile."""

    def __init__(self, on_wait: Callable[[], None] = lambda: None) -> None:
        self.is_done = False
        self._on_wait = on_wait

    def done(self) -> bool:
        return self.is_done

    def wait(self, timeout_seconds: float) -> None:
        self._on_wait()
        if not self.is_done:
            raise ReadTimeoutError("it is still under way")


@dataclass
class Attempt:
    """One read of a piece, as a script sees it."""

    source: MadeUpSource
    piece: Piece
    into: Destination
    pending: list[PendingRead]
    wait: WaitPolicy
    number: int
    """How often this source was asked for this piece before."""

    def deliver(self) -> int:
        """Write the right bytes; return how many were carried."""
        self.into.view[:] = self.piece.content
        return self.piece.length

    def damage(self) -> int:
        """Write wrong bytes; return how many were carried."""
        self.into.view[:] = bytes([self.piece.number ^ 0xFF]) * self.piece.length
        return self.piece.length


Script = Callable[[Attempt], int]


@dataclass(eq=False)
class MadeUpSource:
    """A `ReadableSource` of pieces, which does as its scripts say.

    Attributes:
        has_numbers: of the pieces that it has; None: all.
        is_receiving: whether it still gets pieces itself, and is asked what it has by now.
        script: called for each read.
        batch: how many pieces a reader takes in turn.
        holds: what its reader says to `release` and `still_holds`, in turn; True when used up.
    """

    name: str = "a:1"
    has_numbers: set[int] | None = None
    script: Script = Attempt.deliver
    batch: int = 1
    is_receiving: bool = False
    is_detached: bool = False
    holds: list[bool] = field(default_factory=list)
    open_error: Exception | None = None
    session_error: MxArtifactsError | None = None
    answer_error: MxArtifactsError | None = None
    on_open: Callable[[], object] = lambda: None
    on_refresh: Callable[[], bool] = lambda: False
    reads: list[int] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.is_closed = threading.Event()
        self.is_hung_up = threading.Event()

    def __str__(self) -> str:
        return self.name

    @property
    def address(self) -> SourceAddress:
        return SourceAddress(self.name, "id")

    @property
    def is_complete(self) -> bool:
        return self.has_numbers is None and not self.is_receiving

    def open(self, *, serves_on: bool) -> None:
        self.log.append(f"open, serves on: {serves_on}")
        self.on_open()
        if self.open_error is not None:
            raise self.open_error

    def refresh(self) -> bool:
        return self.on_refresh()

    def has(self, extent: Piece) -> bool:
        return self.has_numbers is None or extent.number in self.has_numbers

    def batch_of(self, first: Piece, waiting: Sequence[Piece]) -> list[Piece]:
        wanted = [piece for piece in waiting if self.has(piece)]
        start = wanted.index(first)
        return wanted[start : start + self.batch]

    @contextmanager
    def reader(self, first: Piece, wait: WaitPolicy) -> Iterator[MadeUpReader]:
        self.log.append(f"lend from {first.number}")
        try:
            yield MadeUpReader(self, wait)
        finally:
            self.log.append("back")

    def check_session(self) -> None:
        if self.session_error is not None:
            raise self.session_error

    def report_damage(self, extent: Piece) -> str:
        return ""

    def check_answers(self, timeout_seconds: float | None = None) -> None:
        self.log.append("asked whether it answers")
        if self.answer_error is not None:
            raise self.answer_error

    def hang_up(self) -> None:
        self.is_hung_up.set()

    def close(self) -> None:
        self.is_closed.set()


class MadeUpReader:
    def __init__(self, source: MadeUpSource, wait: WaitPolicy) -> None:
        self._source = source
        self._wait = wait

    def read(self, extent: Piece, into: Destination, pending: list[PendingRead]) -> int:
        source = self._source
        number = source.reads.count(extent.number)
        source.reads.append(extent.number)
        return source.script(Attempt(source, extent, into, pending, self._wait, number))

    def release(self) -> bool:
        self._source.log.append("release")
        return self._holds()

    def still_holds(self) -> bool:
        return self._holds()

    def _holds(self) -> bool:
        return self._source.holds.pop(0) if self._source.holds else True


class MadeUpSink:
    """A `Sink` of pieces: keeps what is written, and checks what it was read into.

    `destinations` are where pieces go at once, by their number.
    """

    waits = False

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.written: dict[int, bytes] = {}
        self.destinations: dict[int, Destination] = {}
        self.kept: list[Callable[[], bool]] = []
        self.stopped = threading.Event()
        self.on_write: Callable[[Piece], None] = lambda piece: None

    def destination_of(self, extent: Piece) -> Destination | None:
        return self.destinations.get(extent.number)

    def damage(self, extent: Piece, stored: Destination) -> str:
        return "" if stored.view == extent.content else f"piece {extent.number} is damaged"

    def write(self, extent: Piece, stored: Destination) -> None:
        self.on_write(extent)
        with self.lock:
            assert extent.number not in self.written, "each extent is written once"
            self.written[extent.number] = bytes(stored.view)

    def keep_until(self, is_done: Callable[[], bool]) -> None:
        self.kept.append(is_done)

    def stop(self) -> None:
        self.stopped.set()
