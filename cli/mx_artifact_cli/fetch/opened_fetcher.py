"""Opens what `fetch-and-install` needs: client, transport and fetcher."""

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
    """Yield what fetches as the options say."""
    with (
        _transport_factory(early=_will_transfer(options, selected)) as transport_factory,
        open_client(options.server) as client,
    ):
        # After the transport has begun to open.
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
    """Yield what makes this process's transport; None: the fetcher, when it needs one.

    NIXL is opened `early`, while imports, probes and discovery take their time, where any source
    that is found is read from. Where none is, nobody waits for it or hears of its failure.
    """
    if not early or settings.TRANSPORT.read() != settings.NIXL:
        yield None
        return
    from mx_artifacts.transport.opening import OpeningTransport

    with contextlib.closing(OpeningTransport()) as opening:
        yield opening.take


def _will_transfer(options: FetchOptions, selected: Sequence[SelectedKind]) -> bool:
    """Return whether something is transferred if only a source is found."""
    if options.dry_run or options.takes_all:
        return False
    return options.replace or any(map(_is_new_here, selected))


def _is_new_here(selected: SelectedKind) -> bool:
    """Return whether nothing was ever installed in the kind's primary root."""
    from mx_artifacts.install.workspace.opening import has_workspace

    try:
        primary = selected.primary_root()
    except ConfigurationError:
        return False  # the fetch will say so
    return not has_workspace(primary)
