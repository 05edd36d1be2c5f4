"""Waits until a cache can be sealed: its engine is ready, and its files have settled.

Packing ensures consistency (bundle/pack.py). This module prevents sealing too early, before the
engine has compiled what the next node will need.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit, urlunsplit

from mx_artifacts import settings
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.tree import scan_tree
from mx_artifacts.configuration import EnvironmentSettings, from_setting
from mx_artifacts.errors import (
    ConfigurationError,
    EngineNotReadyError,
    NothingToPublishError,
    SourceChangedError,
)
from mx_artifacts.node.network import is_loopback, is_unspecified
from mx_artifacts.observability.catalogue import EngineAwaited, RootsSettling
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock

POLL_SECONDS = 2.0
REQUEST_TIMEOUT_SECONDS = 5.0
"""Of one poll: connecting, and each read."""


@dataclass(frozen=True)
class RootsSignature:
    """What changes when an engine compiles. Times are nanoseconds since the Unix epoch."""

    file_count: int
    content_bytes: int
    newest_mtime_ns: int


@dataclass(frozen=True)
class ReadinessSettings(EnvironmentSettings):
    """Where an engine says that it is ready, and how long to wait until it does.

    Attributes:
        url: of its health page; "": it is not asked.
        head_address: of the head node, whose engine answers for the others'.
        timeout_seconds: for the engine to become ready, and for its caches to settle.
    """

    url: str = from_setting(settings.READY_URL)
    head_address: str = from_setting(settings.HEAD_ADDRESS)
    timeout_seconds: float = from_setting(settings.READY_TIMEOUT)

    def url_on(self, node_rank: int) -> str:
        """Return the URL to poll on that node, "" where none was stated; as `health_url`."""
        if not self.url:
            return ""
        return health_url(self.url, node_rank=node_rank, head_address=self.head_address)


def health_url(url: str, *, node_rank: int = 0, head_address: str = "") -> str:
    """Return the URL to poll on this node: the engine answers on the head node only.

    On another node than the head (node rank 0) a loopback host is replaced by `head_address`, a
    host name or IP address; the port and all else stay.

    Raises:
        ConfigurationError: no http or https URL, or the head's address is needed and empty.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, parts, port = None, SplitResult("", "", "", "", ""), None
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigurationError(
            f"the engine's health URL is {url!r}, but should begin with http:// or https://",
            hint="set it, for example, with --ready-url http://127.0.0.1:8000/health",
        )
    if node_rank == 0 or not (is_loopback(host) or is_unspecified(host)):
        return url
    if not head_address:
        raise ConfigurationError(
            f"{url} is of this node, but on node {node_rank} the engine does not answer",
            hint="state the address of the head node with --head-address",
        )
    head = head_address.strip("[]")
    netloc = f"[{head}]" if ":" in head else head
    return urlunsplit(parts._replace(netloc=netloc if port is None else f"{netloc}:{port}"))


def wait_until_ready(
    url: str,
    *,
    timeout_seconds: float,
    events: EventSink = ignore_events,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Poll `url` every two seconds until it answers with a status of 2xx. Proxies are not used.

    Raises:
        EngineNotReadyError: it did not within `timeout_seconds`; names the last answer.
    """
    events(EngineAwaited(url))
    deadline = clock.monotonic() + timeout_seconds
    while True:
        answer = _poll(url, min(REQUEST_TIMEOUT_SECONDS, timeout_seconds))
        if answer is None:
            return
        left_seconds = deadline - clock.monotonic()
        if left_seconds <= 0:
            raise EngineNotReadyError(
                f"the engine was not ready after {timeout_seconds:g} s: {url} {answer}"
            )
        clock.sleep(min(POLL_SECONDS, left_seconds))


def _poll(url: str, timeout_seconds: float) -> str | None:
    """Return what was wrong with the answer, or None."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_seconds) as response:
            status = response.status
    except urllib.error.HTTPError as error:
        status = error.code
        error.close()
    except urllib.error.URLError as error:
        return f"does not answer ({error.reason})"
    except (OSError, http.client.HTTPException) as error:
        return f"does not answer ({error})"
    return None if 200 <= status < 300 else f"answers with status {status}"


def signature_of(roots: Iterable[tuple[Path, PackRules]]) -> RootsSignature:
    """Return the signature of what would be shipped of `roots`; absent ones count as empty."""
    count, size_bytes, newest = 0, 0, 0
    for root, rules in roots:
        with suppress(NothingToPublishError):
            for member in scan_tree(root, rules).members:
                if not member.is_dir:
                    count += 1
                    size_bytes += member.stamp.size
                    newest = max(newest, member.stamp.mtime_ns)
    return RootsSignature(count, size_bytes, newest)


def wait_until_settled(
    roots: Iterable[tuple[Path, PackRules]],
    *,
    settle_seconds: float,
    timeout_seconds: float,
    events: EventSink = ignore_events,
    clock: Clock = SYSTEM_CLOCK,
) -> RootsSignature:
    """Block until `roots` hold files and their signature stayed the same for `settle_seconds`.

    Raises:
        NothingToPublishError: there was still no file after `timeout_seconds`.
        SourceChangedError: the files still changed then.
    """
    roots = list(roots)
    events(RootsSettling(tuple(str(root) for root, _ in roots)))
    deadline = clock.monotonic() + timeout_seconds
    last, since = signature_of(roots), clock.monotonic()
    while True:
        now = clock.monotonic()
        left_seconds = since + settle_seconds - now
        if left_seconds <= 0 and last.file_count:
            return last
        if now >= deadline:
            raise _unsettled(roots, last, settle_seconds, timeout_seconds)
        clock.sleep(min(POLL_SECONDS, max(left_seconds, 0.0) or POLL_SECONDS, deadline - now))
        found = signature_of(roots)
        if found != last:
            last, since = found, clock.monotonic()


def _unsettled(
    roots: Iterable[tuple[Path, PackRules]],
    last: RootsSignature,
    settle_seconds: float,
    timeout_seconds: float,
) -> NothingToPublishError | SourceChangedError:
    listed = ", ".join(str(root) for root, _ in roots)
    if not last.file_count:
        return NothingToPublishError(f"no files in {listed} after {timeout_seconds:g} s")
    return SourceChangedError(
        f"{listed} did not stay as they were for {settle_seconds:g} s within {timeout_seconds:g} s",
        hint="publish after the engine has finished compiling, or use a shorter --settle",
    )
