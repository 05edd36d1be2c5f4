"""The life cycle of a cache artifact, with the specification's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mx_artifacts.bundle.index import index_of
from mx_artifacts.bundle.packed import PackedTree, PackReport
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity, SourceType
from mx_artifacts.core.manifest import ArtifactManifest
from mx_artifacts.core.member_index import MemberIndex
from mx_artifacts.core.sources import ArtifactSummary
from mx_artifacts.errors import MxArtifactsError
from mx_artifacts.install.base import InstallReport
from mx_artifacts.install.staging.staging import Staging
from mx_artifacts.memory.buffers import Bundle
from mx_artifacts.transport.base import Transport

DEFAULT_LOCK_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class ArtifactCacheRoot:
    """One directory of a cache: where it is read on a source and written on a target.

    The first root of an artifact travels as `artifact.tar`, a further one as `<name>.tar`.
    An optional root may be absent on the source. One that is off is neither read nor written; it
    travels empty, since targets of the reference refuse an artifact that lacks a root.
    """

    name: str
    source_root: Path
    target_root: Path
    optional: bool = False
    off: bool = False


@dataclass(frozen=True)
class PackedRoot:
    """A root that went into a bundle, and what was left out."""

    name: str
    root: Path
    report: PackReport


@dataclass(frozen=True)
class ArtifactBundle:
    """A sealed artifact. `bundles` maps logical manifest paths to the bytes that are served.

    `trees` maps the same paths to what these were packed from.
    """

    bundles: Mapping[str, Bundle]
    manifest: ArtifactManifest
    artifact_id: str
    roots: tuple[PackedRoot, ...]
    trees: Mapping[str, PackedTree[Bundle]] = field(default_factory=dict, repr=False)

    def summary(self, node_rank: int = 0) -> ArtifactSummary:
        """Return what discovery needs to know of this artifact."""
        return ArtifactSummary(
            artifact_id=self.artifact_id,
            total_size=self.manifest.total_size,
            file_count=len(self.manifest.files),
            chunk_count=len(self.manifest.chunks),
            node_rank=node_rank,
        )

    def index_by_file(self) -> Mapping[int, MemberIndex]:
        """Return the members of every bundle, by its file index; none unless all are known."""
        files = self.manifest.files
        if any(file.path not in self.trees for file in files):
            return {}
        trees = {file.file_index: self.trees[file.path] for file in files}
        return {index: index_of(tree.members, tree.memory) for index, tree in trees.items()}

    def close(self) -> None:
        """Free the bundles. Idempotent."""
        for bundle in self.bundles.values():
            bundle.close()


@dataclass(frozen=True)
class ArtifactSourceEndpoint:
    """A source that serves an artifact, ready to be asked; `topology` has its labels."""

    mx_source_id: str
    worker_id: str
    worker_rank: int
    worker_grpc_endpoint: str
    artifact_id: str
    total_size: int
    accelerator: str = ""
    node_rank: int = 0
    topology: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StagedArtifact:
    """A verified artifact on the target's disk, not yet installed: one staged tree for each root.

    `source` is the source that delivered the tables of the artifact. `transferred_bytes` were read
    from it and from others. By endpoint, `delivered` says how many bytes each source delivered,
    `transports` by which transport, and `left_behind` which sources failed, with the error.
    """

    stagings: tuple[Staging, ...]
    manifest: ArtifactManifest
    source: ArtifactSourceEndpoint
    transferred_bytes: int = 0
    delivered: Mapping[str, int] = field(default_factory=dict)
    left_behind: Mapping[str, MxArtifactsError] = field(default_factory=dict)
    transports: Mapping[str, str] = field(default_factory=dict)

    def close(self) -> None:
        """Remove what is staged. Idempotent."""
        for staging in self.stagings:
            staging.close()


class P2PArtifactTransfer(Protocol):
    """How one cache kind travels. The same object type is on source and target."""

    name: str
    mx_source_type: SourceType
    roots: tuple[ArtifactCacheRoot, ...]
    bundle_root: Path

    def prepare_source(self, previous: ArtifactBundle | None = None) -> ArtifactBundle:
        """Seal the source roots into a bundle.

        What is as it was when `previous` was sealed is copied from there instead of read again.
        That must stay open meanwhile; it is not changed, and the result does not depend on it.

        Raises:
            BundleError: a root that is not optional is absent, or holds nothing.
            NoSpaceError: it is too large for the memory, and does not fit below `bundle_root`.
        """
        ...

    def transfer_from_worker(
        self,
        endpoint: str,
        mx_source_id: str,
        artifact_id: str,
        transport: Transport,
        *,
        timeout: float | None = None,
        max_inflight_chunks: int | None = None,
    ) -> StagedArtifact:
        """Fetch from the worker at `endpoint` (host:port) within `timeout` seconds.

        Without `timeout` and `max_inflight_chunks`, MX_TRANSFER_TIMEOUT and MX_ARTIFACT_SLOTS hold.

        Raises:
            IntegrityError, LeaseError, TransportError, RemoteError, NoSpaceError
        """
        ...

    def discover_and_transfer(
        self,
        client: CentralClient,
        identity: SourceIdentity,
        transport: Transport,
        *,
        worker_rank: int | None = None,
        node_rank: int | None = None,
        artifact_id: str = "",
        accelerator: str = "",
        timeout: float | None = None,
        max_inflight_chunks: int | None = None,
    ) -> StagedArtifact:
        """Find sources of `identity` and fetch from those that deliver.

        `timeout` is the budget of one artifact, from all its sources [s]; it and
        `max_inflight_chunks` are as in `transfer_from_worker`.

        Raises:
            NoSourceError, IncompatibleSourceError: there is no source that fits.
            TransferFailedError: every source failed; it lists each and its cause.
        """
        ...

    def install(self, staged: StagedArtifact, *, replace: bool = False) -> InstallReport:
        """Install into the target roots, then remove the staged files.

        Raises:
            InstallError, BundleError: the roots are as they were.
        """
        ...
