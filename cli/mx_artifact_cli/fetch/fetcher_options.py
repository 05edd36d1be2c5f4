"""What `fetch-and-install` makes of its options."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mx_artifact_cli.options import setting_flags
from mx_artifact_cli.selection import SelectedKind
from mx_artifacts import settings
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.node.environment import environment

if TYPE_CHECKING:
    from mx_artifacts.artifacts.target.suitability import SourceWanted
    from mx_artifacts.client.central import CentralClient
    from mx_artifacts.fetcher import ArtifactFetcher
    from mx_artifacts.observability.events import EventSink
    from mx_artifacts.transport.base import Transport


def is_new_here(selected: SelectedKind) -> bool:
    """Return whether nothing was ever installed in a kind's primary root, so that none is there."""
    from mx_artifacts.install.workspace.opening import has_workspace

    try:
        primary = next(iter(selected.roots(environment()).values()))
    except ConfigurationError:
        return False  # the fetch will say so
    return not has_workspace(primary)


@contextlib.contextmanager
def transport_factory_of(*, early: bool) -> Iterator[Callable[[], Transport] | None]:
    """Return what makes this process's transport; None: the fetcher, when it needs one.

    NIXL is opened `early`, while imports, probes and discovery take their time, where any source
    that is found is read from. Where none is, nobody waits for it or hears of its failure.
    """
    if not early or settings.TRANSPORT.read() != settings.NIXL:
        yield None
        return
    from mx_artifacts.transport.opening import OpeningTransport

    with contextlib.closing(OpeningTransport()) as opening:
        yield opening.take


def new_fetcher(
    client: CentralClient,
    fetching: Mapping[str, Any],
    events: EventSink,
    transport_factory: Callable[[], Transport] | None,
    *,
    device: int,
    seed: bool,
) -> ArtifactFetcher:
    """Return what fetches as the options of `fetch-and-install` say."""
    from mx_artifacts.artifacts.target.fetch_values import FetcherSettings
    from mx_artifacts.fetcher import ArtifactFetcher

    return ArtifactFetcher(
        client=client,
        settings=FetcherSettings.from_environment(
            flags=setting_flags(),
            lock_timeout_seconds=fetching["lock_timeout"],
            device_index=device,
            seed=seed,
            durable=fetching["durable"] or settings.DURABLE.read(),
        ),
        transport_factory=transport_factory,
        events=events,
    )


def source_wanted(fetching: Mapping[str, Any], probed_accelerator: str) -> SourceWanted:
    """Return which sources those options take."""
    from mx_artifacts.artifacts.target.suitability import SourceWanted

    return SourceWanted(
        worker_rank=fetching["worker_rank"],
        node_rank=fetching["node_rank"],
        artifact_id=fetching["artifact_id"] or "",
        accelerator=fetching["accelerator"] or probed_accelerator,
        wait_seconds=fetching["wait"] or 0.0,
        allow_other_root=fetching["allow_other_root"],
    )
