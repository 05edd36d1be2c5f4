"""One stream of events that feeds logs, progress bars and tests.

An event is a name in dotted form (`transfer.chunk`) and plain fields. Whoever wants to watch
passes an `EventSink`; the default drops everything and costs one call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """Something that happened. Byte counts end in `_bytes`, times in `_seconds`."""

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)


EventSink = Callable[[Event], None]
"""Called from any thread; must return quickly and must not raise."""


def drop(event: Event) -> None:
    """Ignore `event`; the default sink."""
