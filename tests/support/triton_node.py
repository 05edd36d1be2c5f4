"""A node that publishes Triton groups and fetches them, in one process, over any client."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
from mx_artifacts.artifacts.target.fetch_values import FetcherSettings
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity, SourceType
from mx_artifacts.core.sources import PodIdentity, SourceQuery, SourceStatus, WorkerRecord
from mx_artifacts.errors import BackendUnavailableError
from mx_artifacts.fetcher import ArtifactFetcher
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.publisher import ArtifactPublisher, PublishResult
from tests.support.artifacts import new_agent
from tests.support.triton_writer import write_group

TRITON = get_kind("triton")
IDENTITY = SourceIdentity(mx_source_type=SourceType.TRITON_CACHE, model_name="m")
OTHER = SourceIdentity(mx_source_type=SourceType.TRITON_CACHE, model_name="m", gpu_arch="sm90")
_NO_POD = PodIdentity()
READY = SourceQuery(status=SourceStatus.READY)
BEAT_SECONDS = 0.05


class Client(CentralClient):
    """Loses the next answers to what is published, after the server has heard it."""

    losses = 0

    def publish(
        self,
        identity: SourceIdentity,
        record: WorkerRecord,
        worker_id: str,
        pod: PodIdentity = _NO_POD,
    ) -> str:
        given = super().publish(identity, record, worker_id, pod)
        if self.losses:
            self.losses -= 1
            raise BackendUnavailableError("the answer was lost")
        return given

    def artifact_of(self, identity: SourceIdentity) -> str:
        """Return the id of what the one ready source announces."""
        (ref,) = self.list_sources(READY, identity)
        stored = self.get_metadata(ref.mx_source_id, ref.worker_id)
        assert stored is not None
        assert stored.record.artifact is not None
        return stored.record.artifact.artifact_id


class Node:
    """Publishes groups, at first 0 and 1, under two identities, and fetches them."""

    def __init__(self, place: Path, client: Client, stack: ExitStack) -> None:
        self._place, self._stack, self.client = place, stack, client
        self.root = place / "warm"
        self.write_groups(0, 1)

    def write_groups(self, *numbers: int) -> None:
        for number in numbers:
            write_group(self.root, number, 0)

    def publisher(self, budget_bytes: int = 1 << 30) -> ArtifactPublisher:
        agent = new_agent("source")
        self._stack.callback(agent.close)
        settings = PublisherSettings.from_environment(
            env={},
            bundle_root=self._place / "bundles",
            resident_budget_bytes=budget_bytes,
            publish_timeout_seconds=0,
            port=0,
            heartbeat_interval_seconds=BEAT_SECONDS,
        )
        publisher = ArtifactPublisher(client=self.client, transport=agent, settings=settings)
        return self._stack.enter_context(publisher)

    def publish(self, publisher: ArtifactPublisher) -> PublishResult:
        return publisher.publish(TRITON, IDENTITY, {"": self.root}, also=[OTHER])

    def fetcher(self) -> ArtifactFetcher:
        settings = FetcherSettings.from_environment(
            env={}, bundle_root=self._place / "turns", state_directory=self._place / "state"
        )
        return ArtifactFetcher(
            client=self.client, settings=settings, transport_factory=lambda: new_agent("target")
        )

    def fetch(self, name: str, identity: SourceIdentity = IDENTITY) -> dict[str, bytes]:
        """Install what is served; return the kernels that are there then."""
        with self.fetcher() as fetcher:
            fetcher.fetch_and_install(TRITON, identity, {"": self._place / name})
        return cubins(self._place / name)


def cubins(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.cubin")}
