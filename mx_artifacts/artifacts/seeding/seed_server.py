"""What a fetching process serves its seeds with: made when there is something to serve."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint
from mx_artifacts.artifacts.seeding.seeder import Seeder
from mx_artifacts.artifacts.seeding.seeding_receiver import SeedingReceiver
from mx_artifacts.artifacts.target.fetch_values import FetcherSettings
from mx_artifacts.artifacts.target.root_receiver import RootReceiver
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.memory.budget import BundleBudget
from mx_artifacts.observability.events import EventSink
from mx_artifacts.transport.base import Transport
from mx_artifacts.worker.worker_server import WorkerServer


class SeedServer:
    """A worker server and the seeder that fills it. One thread; `close` it."""

    def __init__(
        self,
        client: CentralClient,
        transport: Callable[[], Transport],
        settings: FetcherSettings,
        events: EventSink,
    ) -> None:
        """Make and ask nothing yet; `transport` returns that of this process."""
        self._client = client
        self._transport = transport
        self._settings = settings
        self._events = events
        self._server: WorkerServer | None = None
        self._seeder: Seeder | None = None

    @property
    def endpoint(self) -> str:
        """Where it serves (host:port), "" while it does not: nobody should read from itself."""
        return self._seeder.endpoint if self._seeder is not None else ""

    @property
    def is_serving(self) -> bool:
        """Whether it serves an artifact."""
        return self._seeder is not None and self._seeder.is_serving

    def receiver(
        self,
        identity: SourceIdentity,
        inner: RootReceiver | None,
        source: ArtifactSourceEndpoint,
    ) -> SeedingReceiver:
        """Return what receives the artifact of `source`, serves it, and passes it on to `inner`.

        Raises:
            ConfigurationError: nothing can listen at the settings' host.
            TransportUnavailableError
        """
        if self._seeder is None:
            self._seeder = self._open()
        return SeedingReceiver(inner, partial(self._seeder.begin, identity, source))

    def end(self, mx_source_id: str) -> None:
        """Serve what was received under this source id no more. Idempotent."""
        if self._seeder is not None:
            self._seeder.end(mx_source_id)

    def _open(self) -> Seeder:
        settings = self._settings
        self._server = WorkerServer(
            self._transport(),
            host=settings.host,
            port=settings.port,
            stream_port=settings.stream_port,
            max_bytes_per_second=settings.max_bytes_per_second,
            compression=settings.compression,
            block_slots=settings.max_inflight_chunks,
            events=self._events,
        )
        self._server.start()
        return Seeder(
            self._client,
            self._transport(),
            self._server,
            BundleBudget(settings.resident_budget_bytes, settings.bundle_root),
            settings.pod,
            settings.heartbeat_interval_seconds,
            self._events,
            settings.topology,
        )

    def close(self) -> None:
        """Serve no more, and let readers finish. Idempotent."""
        if self._seeder is not None:
            self._seeder.close()
        if self._server is not None:
            self._server.stop()
        self._seeder, self._server = None, None
