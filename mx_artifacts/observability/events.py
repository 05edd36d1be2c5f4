"""The base class of all events, and the type of their receivers.

`catalogue.py` lists every event. A caller that wants to receive events passes an `EventSink`; logs,
progress bars, `--format jsonl`, metrics and tests are sinks. The default sink ignores events and
costs one call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, eq=False, repr=False)
class Event:
    """Something that happened. Fields in bytes end in `_bytes`, times in seconds in `_seconds`."""

    name: ClassVar[str]
    """The event's name for programs, dotted: the room's word and what happened there."""

    def fields(self) -> Mapping[str, Any]:
        """Return the event's fields by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event) or type(self) is not type(other):
            return NotImplemented
        return self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash((type(self), *self.fields().values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.fields().items())
        return f"{type(self).__qualname__}({fields})"


EventSink = Callable[[Event], None]
"""Called from any thread; must return quickly and must not raise."""


def ignore_events(event: Event) -> None:
    """Ignore `event`; the default sink."""
