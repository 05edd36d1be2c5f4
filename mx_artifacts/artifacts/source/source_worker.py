"""This process as a source: its worker service, its name, and the memory for what it serves."""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Mapping

from mx_artifacts.artifacts.source.advertisement import Advertisement
from mx_artifacts.artifacts.source.server_wait import ServerWait
from mx_artifacts.artifacts.transport_labels import transport_labels
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.sources import ArtifactSummary, WorkerRecord
from mx_artifacts.memory.budget import BundleBudget
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.process_end import PROCESS_END, HomeProcess
from mx_artifacts.transport.base import Transport
from mx_artifacts.worker.artifact_service import ArtifactService
from mx_artifacts.worker.serving_settings import ServingSettings
from mx_artifacts.worker.worker_server import WorkerServer

NO_WAIT = ServerWait(0.0)


class SourceWorker:
    """A worker service that listens, with the values that all its artifacts share. Any thread.

    Call `close` after use. Otherwise it is closed when the process ends normally, so that no record
    of an ended process stays READY. A child process made by fork does not touch it.

    Attributes:
        settings: settings in which the host and the address to listen on are filled in.
        worker_id: this worker's id at the central server: 8 hex characters.
        memory: for the bundles that it serves.
        artifacts: what it serves.
        server_wait: how long to wait for the central server.
    """

    def __init__(
        self,
        client: CentralClient,
        transport: Transport,
        settings: ServingSettings,
        *,
        worker_rank: int = 0,
        node_rank: int = 0,
        server_wait: ServerWait = NO_WAIT,
        events: EventSink = ignore_events,
    ) -> None:
        """Listen. The caller closes `client` and `transport` after this object.

        With a `server_wait`, this call and advertisements wait for the central server.

        Raises:
            ConfigurationError: the port is in use, the address to listen on is not this machine's,
                or no other machine could use the address to announce.
            BackendUnavailableError: the central server's name does not resolve (now), or no route
                leads there.
        """
        settings.check(client.address)
        self.client = client
        self.transport = transport
        self.settings = server_wait.call(lambda: settings.towards(client.address))
        self.server_wait = server_wait
        self.worker_rank = worker_rank
        self.node_rank = node_rank
        self.worker_id = uuid.uuid4().hex[:8]
        self.memory = BundleBudget(settings.resident_budget_bytes, settings.bundle_root)
        self._home = HomeProcess()
        self._lock = threading.Lock()
        self._advertisements: weakref.WeakSet[Advertisement] = weakref.WeakSet()
        self.artifacts = ArtifactService(
            transport, self.settings, worker_rank=worker_rank, events=events
        )
        self.server = WorkerServer(transport, self.settings, [self.artifacts], events=events)
        try:
            self.server.start()
        except BaseException:
            self.server.stop(0)
            raise
        PROCESS_END.close_at_end(self)

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was made here, and not in a process that this one was forked from."""
        return self._home.is_this

    def record(
        self,
        artifact: ArtifactSummary,
        *,
        worker_rank: int,
        accelerator: str,
        labels: Mapping[str, str],
    ) -> WorkerRecord:
        """Return what the central server is to know of an artifact that is served here."""
        return WorkerRecord(
            worker_rank=worker_rank,
            agent_name=self.transport.agent_name,
            worker_grpc_endpoint=self.server.endpoint,
            accelerator=accelerator,
            topology={
                **self.settings.topology,
                **labels,
                **transport_labels(self.transport.names()),
            },
            artifact=artifact,
        )

    def stop_with(self, advertisement: Advertisement) -> None:
        """Stop `advertisement` when this is closed, unless it was stopped before."""
        with self._lock:
            self._advertisements.add(advertisement)

    def close(self) -> None:
        """Mark all records STALE, let readers finish, free the memory. Idempotent."""
        if not self.is_of_this_process:
            return
        PROCESS_END.forget(self)
        with self._lock:
            advertisements = list(self._advertisements)
        for each in advertisements:
            each.request_stop()
        is_reachable = True  # a server that hangs is waited for once, not for each record
        for each in advertisements:
            is_reachable = each.stop(tell_server=is_reachable) and is_reachable
        self.server.stop()
