"""mx-artifacts: moves JIT and compile caches between inference nodes.

Begin with `ArtifactPublisher` and `ArtifactFetcher`. `mx_artifacts.errors` has the exceptions,
`mx_artifacts.events` what an `EventSink` is called with, `mx_artifacts.plugin` what a package needs
that adds a cache kind, a metadata backend or a transport. Public names load on first use, so that
`import mx_artifacts` costs nothing. All other modules may change without notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mx_artifacts.runtime.lazy import lazy_exports
from mx_artifacts.version import __version__

if TYPE_CHECKING:
    from mx_artifacts import errors as errors
    from mx_artifacts import plugin as plugin
    from mx_artifacts.artifacts.factories import ArtifactTransferFactory as ArtifactTransferFactory
    from mx_artifacts.artifacts.factories import (
        cute_dsl_cache_artifact_transfer as cute_dsl_cache_artifact_transfer,
    )
    from mx_artifacts.artifacts.factories import (
        deep_gemm_cache_artifact_transfer as deep_gemm_cache_artifact_transfer,
    )
    from mx_artifacts.artifacts.factories import (
        flashinfer_cache_artifact_transfer as flashinfer_cache_artifact_transfer,
    )
    from mx_artifacts.artifacts.factories import (
        tilelang_cache_artifact_transfer as tilelang_cache_artifact_transfer,
    )
    from mx_artifacts.artifacts.factories import (
        torch_compile_cache_artifact_transfer as torch_compile_cache_artifact_transfer,
    )
    from mx_artifacts.artifacts.factories import (
        triton_cache_artifact_transfer as triton_cache_artifact_transfer,
    )
    from mx_artifacts.artifacts.factories import (
        tvm_ffi_cache_artifact_transfer as tvm_ffi_cache_artifact_transfer,
    )
    from mx_artifacts.artifacts.protocol import ArtifactBundle as ArtifactBundle
    from mx_artifacts.artifacts.protocol import ArtifactCacheRoot as ArtifactCacheRoot
    from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint as ArtifactSourceEndpoint
    from mx_artifacts.artifacts.protocol import P2PArtifactTransfer as P2PArtifactTransfer
    from mx_artifacts.artifacts.protocol import PackedRoot as PackedRoot
    from mx_artifacts.artifacts.protocol import StagedArtifact as StagedArtifact
    from mx_artifacts.artifacts.source.publish import (
        PublishedArtifactSource as PublishedArtifactSource,
    )
    from mx_artifacts.artifacts.source.publish import (
        publish_artifact_source as publish_artifact_source,
    )
    from mx_artifacts.artifacts.source.publisher_settings import (
        PublisherSettings as PublisherSettings,
    )
    from mx_artifacts.artifacts.source.server_wait import ServerWait as ServerWait
    from mx_artifacts.artifacts.source.source_worker import SourceWorker as SourceWorker
    from mx_artifacts.artifacts.target.discover import (
        discover_artifact_source as discover_artifact_source,
    )
    from mx_artifacts.artifacts.target.fetch_values import FetcherSettings as FetcherSettings
    from mx_artifacts.artifacts.target.fetch_values import FetchPlan as FetchPlan
    from mx_artifacts.artifacts.target.fetch_values import FetchResult as FetchResult
    from mx_artifacts.artifacts.target.group_member import GroupWanted as GroupWanted
    from mx_artifacts.artifacts.target.suitability import ANY_SOURCE as ANY_SOURCE
    from mx_artifacts.artifacts.target.suitability import SourceWanted as SourceWanted
    from mx_artifacts.artifacts.tarred import TarredP2PArtifactTransfer as TarredP2PArtifactTransfer
    from mx_artifacts.bundle.packed import PackReport as PackReport
    from mx_artifacts.bundle.tree import SkippedPath as SkippedPath
    from mx_artifacts.client.central import CentralClient as CentralClient
    from mx_artifacts.client.central import ServerHealth as ServerHealth
    from mx_artifacts.configuration import SettingFlags as SettingFlags
    from mx_artifacts.core.compatibility import accelerators_compatible as accelerators_compatible
    from mx_artifacts.core.identity import AnyBackendFramework as AnyBackendFramework
    from mx_artifacts.core.identity import AnySourceType as AnySourceType
    from mx_artifacts.core.identity import BackendFramework as BackendFramework
    from mx_artifacts.core.identity import SourceIdentity as SourceIdentity
    from mx_artifacts.core.identity import SourceType as SourceType
    from mx_artifacts.core.identity import compute_mx_source_id as compute_mx_source_id
    from mx_artifacts.core.manifest import ArtifactManifest as ArtifactManifest
    from mx_artifacts.core.manifest import ManifestChunk as ManifestChunk
    from mx_artifacts.core.manifest import ManifestFile as ManifestFile
    from mx_artifacts.core.sources import ArtifactSummary as ArtifactSummary
    from mx_artifacts.core.sources import PodIdentity as PodIdentity
    from mx_artifacts.core.sources import SourceQuery as SourceQuery
    from mx_artifacts.core.sources import SourceRef as SourceRef
    from mx_artifacts.core.sources import SourceStatus as SourceStatus
    from mx_artifacts.core.sources import StoredWorker as StoredWorker
    from mx_artifacts.core.sources import TensorDescriptor as TensorDescriptor
    from mx_artifacts.core.sources import WorkerRecord as WorkerRecord
    from mx_artifacts.fetcher import ArtifactFetcher as ArtifactFetcher
    from mx_artifacts.identity.identify import ProbedIdentity as ProbedIdentity
    from mx_artifacts.identity.identify import Profile as Profile
    from mx_artifacts.identity.identify import probe_identity as probe_identity
    from mx_artifacts.install.base import ArtifactOrigin as ArtifactOrigin
    from mx_artifacts.install.base import InstallReport as InstallReport
    from mx_artifacts.install.base import RootReport as RootReport
    from mx_artifacts.install.receipts.lookup import FoundReceipt as FoundReceipt
    from mx_artifacts.install.receipts.receipt import InstalledEntry as InstalledEntry
    from mx_artifacts.install.receipts.receipt import InstalledFile as InstalledFile
    from mx_artifacts.install.receipts.receipt import Receipt as Receipt
    from mx_artifacts.install.receipts.receipt import RootReceipt as RootReceipt
    from mx_artifacts.install.state.contents import EntryState as EntryState
    from mx_artifacts.install.state.contents import RootState as RootState
    from mx_artifacts.install.state.contents import VerifyReport as VerifyReport
    from mx_artifacts.install.uninstall import RootUndo as RootUndo
    from mx_artifacts.install.uninstall import UndoReport as UndoReport
    from mx_artifacts.install.uninstall import uninstall_artifact as uninstall_artifact
    from mx_artifacts.install.usage import RootUsage as RootUsage
    from mx_artifacts.install.usage import UsageReport as UsageReport
    from mx_artifacts.install.usage import UsageVerdict as UsageVerdict
    from mx_artifacts.install.usage import usage_of as usage_of
    from mx_artifacts.install.verify import InstallVerification as InstallVerification
    from mx_artifacts.install.verify import verify_install as verify_install
    from mx_artifacts.kinds.base import CacheKind as CacheKind
    from mx_artifacts.kinds.registry import all_kinds as all_kinds
    from mx_artifacts.kinds.registry import get_kind as get_kind
    from mx_artifacts.memory.budget import BundleBudget as BundleBudget
    from mx_artifacts.observability import catalogue as events  # noqa: F401 - a public name
    from mx_artifacts.observability.events import Event as Event
    from mx_artifacts.observability.events import EventSink as EventSink
    from mx_artifacts.observability.events import ignore_events as ignore_events
    from mx_artifacts.publisher import ArtifactPublisher as ArtifactPublisher
    from mx_artifacts.publisher import PublishResult as PublishResult
    from mx_artifacts.runtime.clock import Clock as Clock
    from mx_artifacts.transfer.engine import TransferLimits as TransferLimits
    from mx_artifacts.transfer.timing import TransferTiming as TransferTiming
    from mx_artifacts.transport.base import Transport as Transport
    from mx_artifacts.transport.registry import open_transport as open_transport
    from mx_artifacts.worker.artifact_service import ArtifactService as ArtifactService
    from mx_artifacts.worker.base import ServedService as ServedService
    from mx_artifacts.worker.serving_settings import ServingSettings as ServingSettings
    from mx_artifacts.worker.worker_server import WorkerServer as WorkerServer
    from mx_artifacts.workflows.fetch_kinds import FetchedKind as FetchedKind
    from mx_artifacts.workflows.fetch_kinds import FetchKindsRequest as FetchKindsRequest
    from mx_artifacts.workflows.fetch_kinds import PlannedKind as PlannedKind
    from mx_artifacts.workflows.fetch_kinds import fetch_kinds as fetch_kinds
    from mx_artifacts.workflows.fetch_kinds import plan_kinds as plan_kinds
    from mx_artifacts.workflows.follow_roots import RootsFollower as RootsFollower
    from mx_artifacts.workflows.follow_settings import FollowSettings as FollowSettings
    from mx_artifacts.workflows.follow_sources import SourcesFollower as SourcesFollower
    from mx_artifacts.workflows.kind_outcomes import KindOutcomes as KindOutcomes
    from mx_artifacts.workflows.publish_kinds import PublishedKind as PublishedKind
    from mx_artifacts.workflows.publish_kinds import PublishKindsRequest as PublishKindsRequest
    from mx_artifacts.workflows.publish_kinds import publish_kinds as publish_kinds
    from mx_artifacts.workflows.receipts import believed_roots as believed_roots
    from mx_artifacts.workflows.receipts import interrupted_install as interrupted_install
    from mx_artifacts.workflows.receipts import receipts_of_artifact as receipts_of_artifact
    from mx_artifacts.workflows.receipts import receipts_of_kind as receipts_of_kind
    from mx_artifacts.workflows.receipts import take_back_interrupted as take_back_interrupted
    from mx_artifacts.workflows.selected_kind import SelectedKind as SelectedKind
    from mx_artifacts.workflows.selected_kind import present_kinds as present_kinds
    from mx_artifacts.workflows.stop import Stop as Stop
    from mx_artifacts.workflows.stop import StopEvent as StopEvent

_EXPORTS = {
    "ANY_SOURCE": "artifacts.target.suitability",
    "AnyBackendFramework": "core.identity",
    "AnySourceType": "core.identity",
    "ArtifactBundle": "artifacts.protocol",
    "ArtifactCacheRoot": "artifacts.protocol",
    "ArtifactFetcher": "fetcher",
    "ArtifactManifest": "core.manifest",
    "ArtifactOrigin": "install.base",
    "ArtifactPublisher": "publisher",
    "ArtifactSourceEndpoint": "artifacts.protocol",
    "ArtifactSummary": "core.sources",
    "ArtifactTransferFactory": "artifacts.factories",
    "BackendFramework": "core.identity",
    "BundleBudget": "memory.budget",
    "CacheKind": "kinds.base",
    "CentralClient": "client.central",
    "Clock": "runtime.clock",
    "EntryState": "install.state.contents",
    "Event": "observability.events",
    "EventSink": "observability.events",
    "FetchKindsRequest": "workflows.fetch_kinds",
    "FetchPlan": "artifacts.target.fetch_values",
    "FetchResult": "artifacts.target.fetch_values",
    "FetchedKind": "workflows.fetch_kinds",
    "FetcherSettings": "artifacts.target.fetch_values",
    "FollowSettings": "workflows.follow_settings",
    "FoundReceipt": "install.receipts.lookup",
    "GroupWanted": "artifacts.target.group_member",
    "InstallReport": "install.base",
    "InstallVerification": "install.verify",
    "InstalledEntry": "install.receipts.receipt",
    "InstalledFile": "install.receipts.receipt",
    "KindOutcomes": "workflows.kind_outcomes",
    "ManifestChunk": "core.manifest",
    "ManifestFile": "core.manifest",
    "P2PArtifactTransfer": "artifacts.protocol",
    "PackReport": "bundle.packed",
    "PackedRoot": "artifacts.protocol",
    "PlannedKind": "workflows.fetch_kinds",
    "PodIdentity": "core.sources",
    "ProbedIdentity": "identity.identify",
    "Profile": "identity.identify",
    "PublishKindsRequest": "workflows.publish_kinds",
    "PublishResult": "publisher",
    "PublishedArtifactSource": "artifacts.source.publish",
    "PublishedKind": "workflows.publish_kinds",
    "PublisherSettings": "artifacts.source.publisher_settings",
    "Receipt": "install.receipts.receipt",
    "RootReceipt": "install.receipts.receipt",
    "RootReport": "install.base",
    "RootState": "install.state.contents",
    "RootUndo": "install.uninstall",
    "RootUsage": "install.usage",
    "RootsFollower": "workflows.follow_roots",
    "SelectedKind": "workflows.selected_kind",
    "ServerHealth": "client.central",
    "ServerWait": "artifacts.source.server_wait",
    "ServingSettings": "worker.serving_settings",
    "SettingFlags": "configuration",
    "SkippedPath": "bundle.tree",
    "SourceIdentity": "core.identity",
    "SourceQuery": "core.sources",
    "SourceRef": "core.sources",
    "SourceStatus": "core.sources",
    "SourceType": "core.identity",
    "SourceWanted": "artifacts.target.suitability",
    "SourceWorker": "artifacts.source.source_worker",
    "SourcesFollower": "workflows.follow_sources",
    "StagedArtifact": "artifacts.protocol",
    "Stop": "workflows.stop",
    "StopEvent": "workflows.stop",
    "StoredWorker": "core.sources",
    "TarredP2PArtifactTransfer": "artifacts.tarred",
    "TensorDescriptor": "core.sources",
    "TransferLimits": "transfer.engine",
    "TransferTiming": "transfer.timing",
    "Transport": "transport.base",
    "UndoReport": "install.uninstall",
    "UsageReport": "install.usage",
    "UsageVerdict": "install.usage",
    "VerifyReport": "install.state.contents",
    "WorkerRecord": "core.sources",
    "ArtifactService": "worker.artifact_service",
    "ServedService": "worker.base",
    "WorkerServer": "worker.worker_server",
    "accelerators_compatible": "core.compatibility",
    "all_kinds": "kinds.registry",
    "believed_roots": "workflows.receipts",
    "compute_mx_source_id": "core.identity",
    "cute_dsl_cache_artifact_transfer": "artifacts.factories",
    "deep_gemm_cache_artifact_transfer": "artifacts.factories",
    "discover_artifact_source": "artifacts.target.discover",
    "errors": "errors:",
    "events": "observability.catalogue:",
    "fetch_kinds": "workflows.fetch_kinds",
    "flashinfer_cache_artifact_transfer": "artifacts.factories",
    "get_kind": "kinds.registry",
    "ignore_events": "observability.events",
    "interrupted_install": "workflows.receipts",
    "open_transport": "transport.registry",
    "plan_kinds": "workflows.fetch_kinds",
    "plugin": "plugin:",
    "present_kinds": "workflows.selected_kind",
    "probe_identity": "identity.identify",
    "publish_artifact_source": "artifacts.source.publish",
    "publish_kinds": "workflows.publish_kinds",
    "receipts_of_artifact": "workflows.receipts",
    "receipts_of_kind": "workflows.receipts",
    "take_back_interrupted": "workflows.receipts",
    "tilelang_cache_artifact_transfer": "artifacts.factories",
    "torch_compile_cache_artifact_transfer": "artifacts.factories",
    "triton_cache_artifact_transfer": "artifacts.factories",
    "tvm_ffi_cache_artifact_transfer": "artifacts.factories",
    "uninstall_artifact": "install.uninstall",
    "usage_of": "install.usage",
    "verify_install": "install.verify",
}

__all__ = ["__version__", *_EXPORTS]  # noqa: PLE0604 - checked in a test
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
