"""TarredP2PArtifactTransfer: each root is transferred as one uncompressed tar."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from mx_artifacts import settings
from mx_artifacts.artifacts.bundle_root import check_bundle_root
from mx_artifacts.artifacts.labels import root_objection
from mx_artifacts.artifacts.protocol import (
    DEFAULT_LOCK_TIMEOUT_SECONDS,
    ArtifactBundle,
    ArtifactCacheRoot,
    ArtifactSourceEndpoint,
    PackedRoot,
    StagedArtifact,
)
from mx_artifacts.artifacts.target.discover import (
    OrderCandidates,
    candidate_sources,
    target_of,
)
from mx_artifacts.artifacts.target.incoming import (
    FindMore,
    IncomingArtifact,
    WrapReceiver,
    no_more,
    not_wrapped,
)
from mx_artifacts.artifacts.target.root_receiver import WantedBundle
from mx_artifacts.artifacts.target.suitability import SourceWanted
from mx_artifacts.bundle.existing_entries import count_entries
from mx_artifacts.bundle.pack import pack_tree
from mx_artifacts.bundle.packed import PackedTree, PackReport
from mx_artifacts.bundle.seal import seal
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import (
    AnyBackendFramework,
    BackendFramework,
    SourceIdentity,
    SourceType,
)
from mx_artifacts.core.sources import WorkerRecord
from mx_artifacts.errors import (
    ConfigurationError,
)
from mx_artifacts.filesystem.space import Need, require_space
from mx_artifacts.install.base import (
    ALONE,
    Agreement,
    ArtifactOrigin,
    InstallReport,
    RootInstall,
)
from mx_artifacts.install.installer import install_artifact
from mx_artifacts.install.state.already_installed import find_installed
from mx_artifacts.install.workspace.opening import check_target
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.kinds.existing_entries import existing_entry_judge
from mx_artifacts.kinds.registry import kind_of
from mx_artifacts.memory.budget import BundleBudget
from mx_artifacts.memory.buffers import Bundle
from mx_artifacts.node.environment import environment
from mx_artifacts.observability.catalogue import RootPacked
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.transfer.engine import TransferLimits
from mx_artifacts.transport.base import Transport

PRIMARY_BUNDLE_NAME = "artifact.tar"


@dataclass(frozen=True)
class TarredP2PArtifactTransfer:
    """How the roots of a cache kind are moved as tars.

    `chunk_size` is in bytes; by default MX_ARTIFACT_TRANSFER_CHUNK_SIZE. `kind` decides what is
    packed, in which entries it is installed and how paths are adapted; by default it is the kind of
    `mx_source_type`. `framework` is the engine that uses the cache, for messages on what decided
    where its roots are. `memory` lends the memory into which bundles are packed; by default
    MX_ARTIFACT_RESIDENT_BUDGET bytes for each artifact. Further bundles are in files below
    `bundle_root`. `durable`: whether an install waits until what it wrote is on the disk; by
    default MX_ARTIFACT_DURABLE. `clock` is for the age of files and for waiting until they have
    settled.
    """

    name: str
    mx_source_type: SourceType
    roots: tuple[ArtifactCacheRoot, ...]
    bundle_root: Path
    chunk_size: int | None = None
    tar_name: str = PRIMARY_BUNDLE_NAME
    kind: CacheKind | None = None
    framework: AnyBackendFramework = BackendFramework.UNKNOWN
    lock_timeout_seconds: float = DEFAULT_LOCK_TIMEOUT_SECONDS
    durable: bool | None = None
    memory: BundleBudget | None = field(default=None, repr=False, compare=False)
    events: EventSink = field(default=ignore_events, repr=False, compare=False)
    clock: Clock = field(default=SYSTEM_CLOCK, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [self._bundle_name(root) for root in self.roots]
        if not names:
            raise ConfigurationError(f"artifact {self.name!r} has no root")
        if len({n.lower() for n in names}) != len(names) or any("/" in n for n in names):
            raise ConfigurationError(
                f"artifact {self.name!r} has the same root name twice: {names}"
            )

    @property
    def cache_kind(self) -> CacheKind:
        """The kind whose rules hold."""
        return self.kind or kind_of(self.mx_source_type)

    def _bundle_name(self, root: ArtifactCacheRoot) -> str:
        return self.tar_name if root is self.roots[0] else f"{root.name}.tar"

    def _logical_path(self, root: ArtifactCacheRoot) -> str:
        # The same on every node, so that equal bundles have equal artifact ids (docs/adr/0002).
        return f"/mx-artifacts/{self.name}/{self._bundle_name(root)}"

    # --- source ----------------------------------------------------------------------------------

    def prepare_source(self, previous: ArtifactBundle | None = None) -> ArtifactBundle:
        """Seal the source roots; see `P2PArtifactTransfer.prepare_source`."""
        check_bundle_root(self.bundle_root)
        memory = self.memory or BundleBudget(settings.RESIDENT_BUDGET.read(), self.bundle_root)
        packed: list[PackedRoot] = []
        trees: dict[str, PackedTree[Bundle]] = {}
        former = {} if previous is None else previous.trees
        try:
            for root in self.roots:
                path = self._logical_path(root)
                tree = trees[path] = self._pack(root, memory.allocate, former.get(path))
                if not root.off:
                    packed.append(PackedRoot(root.name, root.source_root, tree.report))
                    self.events(_root_packed(root.source_root, tree.report))
            chunk_size = self.chunk_size or settings.CHUNK_SIZE.read()
            bundles = {path: tree.memory for path, tree in trees.items()}
            manifest = seal(bundles, self.mx_source_type, chunk_size)
        except BaseException:
            for tree in trees.values():
                tree.memory.close()
            raise
        return ArtifactBundle(bundles, manifest, manifest.artifact_id, tuple(packed), trees)

    def _pack(
        self,
        root: ArtifactCacheRoot,
        allocate: Callable[[int], Bundle],
        previous: PackedTree[Bundle] | None,
    ) -> PackedTree[Bundle]:
        # An optional root that is absent travels as an empty bundle, since targets of the
        # reference refuse an artifact that lacks one. So does one that is off.
        path = Path(os.devnull, "absent") if root.off else root.source_root
        return pack_tree(
            path,
            self.cache_kind.pack,
            allocate,
            optional=root.optional or root.off,
            previous=previous,
            clock=self.clock,
        )

    # --- target ----------------------------------------------------------------------------------

    def check_places(self) -> None:
        """Refuse target roots and a bundle root that cannot be written to. Changes nothing.

        Raises:
            UnusablePlaceError: names the place, and says why.
        """
        check_bundle_root(self.bundle_root)
        for root in self.roots:
            check_target(root.target_root)

    def check_space(self, total_bytes: int) -> None:
        """Refuse an artifact that is too large to be staged beside the target roots.

        `total_bytes` is its size as its source announces it. How it divides over roots on several
        file systems is known after the transfer has begun; then nothing is refused here.

        Raises:
            NoSpaceError: as the install would.
        """
        places = [check_target(root.target_root) for root in self.roots if not root.off]
        if len({place.stat().st_dev for place in places}) == 1:
            require_space([Need(places[0], (total_bytes,))])

    def find_installed(self, artifact_id: str) -> InstallReport | None:
        """Return what installing this artifact would report, if that would change nothing."""
        roots = {root.name: root.target_root for root in self.roots}
        kind = self.cache_kind
        return find_installed(
            roots, artifact_id, existing_entry_judge(kind), with_mtimes=kind.pack.keep_mtimes
        )

    def count_existing_entries(self) -> dict[Path, int]:
        """Return how many entries each target root holds now."""
        roots = (root.target_root for root in self.roots if not root.off)
        return {root: count_entries(root, self.cache_kind.pack) for root in roots}

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
        """Fetch from one worker; see `P2PArtifactTransfer.transfer_from_worker`."""
        source = ArtifactSourceEndpoint(mx_source_id, "", 0, endpoint, artifact_id, 0)
        return self.transfer_from_source(
            source, transport, timeout=timeout, max_inflight_chunks=max_inflight_chunks
        )

    def transfer_from_source(
        self,
        source: ArtifactSourceEndpoint,
        transport: Transport,
        *,
        timeout: float | None = None,
        max_inflight_chunks: int | None = None,
    ) -> StagedArtifact:
        """Fetch from a discovered source."""
        limits = _limits(timeout, max_inflight_chunks)
        return self._incoming(transport, limits).from_sources([source])

    def _incoming(self, transport: Transport, limits: TransferLimits) -> IncomingArtifact:
        wanted = self._wanted_bundles()
        return IncomingArtifact(
            self.name, self.mx_source_type, wanted, transport, limits, self.events
        )

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
        order: OrderCandidates | None = None,
        allow_other_root: bool = False,
    ) -> StagedArtifact:
        """Fetch from the sources that deliver; see `P2PArtifactTransfer`.

        Sources whose cache cannot be used in these roots are left out, unless `allow_other_root`.
        `order` puts the others in order, by default the policy of MX_P2P_SOURCE_SELECTOR. No more
        of them are asked for their records than are read from.
        """
        wanted = SourceWanted(worker_rank, node_rank, artifact_id, accelerator)
        target = target_of(identity, wanted)
        if not allow_other_root:
            target = replace(target, root_objection=self.root_objection)
        candidates = candidate_sources(client, target, order=order)
        limits = _limits(timeout, max_inflight_chunks)
        return self.transfer_from_any(candidates, transport, limits)

    def root_objection(self, record: WorkerRecord) -> str:
        """Return why the cache of a source cannot be used in these target roots, or ""."""
        return root_objection(
            self.cache_kind, self.roots, record.topology, environment(), self.framework
        )

    def transfer_from_any(
        self,
        candidates: Iterable[ArtifactSourceEndpoint],
        transport: Transport,
        limits: TransferLimits,
        find_more: FindMore = no_more,
        wrap: WrapReceiver = not_wrapped,
    ) -> StagedArtifact:
        """Fetch from `candidates`: the artifact of the first, from all that serve it, at once.

        If they fail, the next artifact is tried. `find_more` returns further sources of one.
        `wrap` returns what receives in the receiver's place, and passes on what is for that.

        Raises:
            TransferFailedError: all failed; it lists each source and its cause.
        """
        return self._incoming(transport, limits).from_any(candidates, find_more, wrap)

    def _wanted_bundles(self) -> list[WantedBundle]:
        """Return the bundles of an artifact, and how those that are wanted are installed."""
        kind = self.cache_kind
        durable = settings.DURABLE.read() if self.durable is None else self.durable
        return [
            WantedBundle(
                self._bundle_name(root),
                root.optional,
                None
                if root.off
                else RootInstall(
                    root.name,
                    root.target_root,
                    kind.install_entry_of,
                    kind.fixups,
                    keep_mtimes=kind.pack.keep_mtimes,
                    judge=existing_entry_judge(kind),
                    atomic_entries=kind.atomic_entries,
                    touched_on_hit=kind.signs.touched_on_hit,
                    durable=durable,
                ),
            )
            for root in self.roots
        ]

    def install(
        self, staged: StagedArtifact, *, replace: bool = False, agreement: Agreement = ALONE
    ) -> InstallReport:
        """Install and remove what is staged; see `P2PArtifactTransfer.install`.

        `agreement` is asked as `install_artifact` asks it.
        """
        source = staged.source
        try:
            return install_artifact(
                staged.stagings,
                artifact=ArtifactOrigin(
                    artifact_id=source.artifact_id,
                    mx_source_id=source.mx_source_id,
                    worker_id=source.worker_id,
                    endpoint=source.worker_grpc_endpoint,
                    kind=self.name,
                    transport=",".join(sorted(set(staged.transports.values()))),
                ),
                replace=replace,
                lock_timeout_seconds=self.lock_timeout_seconds,
                agreement=agreement,
                events=self.events,
            )
        finally:
            staged.close()


def _limits(timeout_seconds: float | None, max_inflight: int | None) -> TransferLimits:
    """Return what a transfer may cost; what is not stated here, the environment states."""
    return TransferLimits(
        settings.TRANSFER_TIMEOUT.read() if timeout_seconds is None else timeout_seconds,
        settings.SLOTS.read() if max_inflight is None else max_inflight,
        max_bytes_per_second=settings.MAX_RATE.read(),
        compression=settings.COMPRESSION.read(),
    )


def _root_packed(root: Path, report: PackReport) -> RootPacked:
    skipped = [(each.path, each.reason) for each in report.skipped]
    return RootPacked(
        str(root), report.file_count, report.content_bytes, report.bundle_bytes, skipped
    )
