"""The times of a transfer [s], each with its reason. Tests pass in others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TransferTiming:
    """How long a transfer waits for what.

    Attributes:
        call: maximum time of one call to a source; above the time for which a source lets a target
            wait for a slot.
        hedge: time after which the next source is asked for the tables too; many times what tables
            take.
        read_slice: interval in which a waiting thread notices a lost source or another's error.
        stalled_read: time without bytes after which the source is asked whether it still answers.
        min_stall: minimum time after which a read that another source could do is given up.
        stall_factor: the same, as a multiple of what the fastest source needs.
        rest: time for which a source that stalled is not asked if another one can be; doubled each
            time.
        overtime: time after the deadline in which threads end by themselves, unless the transport
            blocks them.
        stop: maximum time that a failed transfer waits for its threads to give leases back before
            it hangs up.
        refresh: interval in which a source that is still receiving is asked what it has by now.
        first_retry, last_retry: pause before a lost source that is still listed is tried again: the
            first, and the longest, as the pause doubles.
        looks: pauses before looks for further sources: short at first, as many targets start at
            once; the last one repeats. A look costs the central server two listings.
        calm: minimum pause between looks of a target that only reads and has a complete source.
            Sixteen such targets asked the central server a hundred times in four seconds.
        stuck: maximum wait for extents that no source has, while none of them receives any.
        busy: time that a target which serves on waits for its turn while nothing arrives; after it
            the target does not say that it serves on, since the targets before it may be stuck.
        stale: time without progress after which sources that have nothing of the rest make room.
    """

    call: float = 10.0
    hedge: float = 1.0
    read_slice: float = 0.25
    stalled_read: float = 5.0
    min_stall: float = 1.0
    stall_factor: float = 8.0
    rest: float = 5.0
    overtime: float = 2.0
    stop: float = 3.0
    refresh: float = 0.05
    first_retry: float = 0.5
    last_retry: float = 4.0
    looks: tuple[float, ...] = (0.1, 0.1, 0.2, 0.25, 0.25, 0.5, 0.5, 1.0, 2.0)
    calm: float = 1.0
    stuck: float = 30.0
    busy: float = 20.0
    stale: float = 1.0


DEFAULT_TIMING = TransferTiming()
