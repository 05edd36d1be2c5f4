"""Opens the client, the transport and the fetcher of `fetch-and-install`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from mx_artifact_cli.connect import open_client
from mx_artifacts import settings
from mx_artifacts.errors import ConfigurationError

if TYPE_CHECKING:
    from mx_artifact_cli.fetch.options import FetchOptions
    from mx_artifacts.fetcher import ArtifactFetcher
    from mx_artifacts.observability.events import EventSink
    from mx_artifacts.transport.base import Transport
    from mx_artifacts.workflows.selected_kind import SelectedKind


@contextlib.contextmanager
def opened_fetcher(
    options: FetchOptions, selected: Sequence[SelectedKind], events: EventSink
) -> Iterator[ArtifactFetcher]:
    """Yield the fetcher that the options describe."""
    with (
        _transport_factory(early=_will_transfer(options, selected)) as transport_factory,
        open_client(options.server) as client,
    ):
        # These imports run while the transport opens.
        from mx_artifacts.artifacts.target.fetch_values import FetcherSettings
        from mx_artifacts.fetcher import ArtifactFetcher

        fetcher = ArtifactFetcher(
            client=client,
            settings=FetcherSettings.from_environment(
                flags=options.flags,
                lock_timeout_seconds=options.lock_timeout,
                device_index=options.identity.device,
                seed=options.seed,
                durable=options.durable or settings.DURABLE.read(),
            ),
            transport_factory=transport_factory,
            events=events,
        )
        with fetcher:
            yield fetcher


@contextlib.contextmanager
def _transport_factory(*, early: bool) -> Iterator[Callable[[], Transport] | None]:
    """Yield the factory of this process's transport; None: the fetcher opens it when needed.

    With `early`, NIXL is opened during imports, probes and discovery. Use `early` if the fetch will
    read from any source that it finds. If it finds none, it does not wait for NIXL, and an error
    of NIXL is not reported.
    """
    if not early or settings.TRANSPORT.read() != settings.NIXL:
        yield None
        return
    from mx_artifacts.transport.opening import OpeningTransport

    with contextlib.closing(OpeningTransport()) as opening:
        yield opening.take


def _will_transfer(options: FetchOptions, selected: Sequence[SelectedKind]) -> bool:
    """Return whether this fetch will transfer something if it finds a source."""
    if options.dry_run or options.takes_all:
        return False
    return options.replace or any(map(_is_new_here, selected))


def _is_new_here(selected: SelectedKind) -> bool:
    """Return whether the primary root of the kind never had an install."""
    from mx_artifacts.install.workspace.opening import has_workspace

    try:
        primary = selected.primary_root()
    except ConfigurationError:
        return False  # the fetch will report this error
    return not has_workspace(primary)
