"""Errors of Redis when it cannot serve us, and what an operator should do about them.

All of them mean "unavailable": none of them means that a record is missing or a request is wrong.
"""

from __future__ import annotations

from mx_artifacts.errors import BackendUnavailableError

TIMEOUT, UNREACHABLE = "timeout", "unreachable"
"""Codes of the failures that Redis itself does not name."""

# code -> what is wrong, next step
_FAILURES: dict[str, tuple[str, str]] = {
    "NOAUTH": (
        "refuses the user or password",
        "put them into the URL: redis://user:password@host:port/db",
    ),
    "NOPERM": (
        "does not give this user the required rights",
        "allow it ~mx:source:* and ~mx:group:*, and the commands of hashes, strings, scripts, "
        "DEL, SCAN, PING",
    ),
    "LOADING": ("is still loading its data", "wait; it is used as soon as it is ready"),
    "READONLY": ("is a read-only replica", "point the Redis URL at the primary"),
    "OOM": (
        "is out of memory (maxmemory)",
        "raise its maxmemory; no key of ours may be evicted",
    ),
    "MISCONF": (
        "refuses writes since it cannot save to its disk",
        "free its disk, or set stop-writes-on-bgsave-error no",
    ),
    TIMEOUT: ("does not answer in time", "check its load, and the network between"),
    UNREACHABLE: (
        "cannot be reached",
        "check that it runs there; it is used again as soon as it answers",
    ),
}


def unavailable(code: str | None, text: str, address: str) -> BackendUnavailableError:
    """Return the error for Redis at `address`.

    `code` is the failure if the client library knows it. Otherwise it is looked for in the text
    among Redis's own codes: older servers wrap an error inside a script into another one.
    """
    if code is None:
        code = next((known for known in _FAILURES if known.isupper() and known in text), None)
    what, hint = _FAILURES.get(code or "", ("failed", "see its log"))
    return BackendUnavailableError(f"Redis {address} {what}: {text}", hint=hint)
