"""mx-artifacts: moves JIT and compile caches between inference nodes.

Public names load on first use, so that `import mx_artifacts` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mx_artifacts.version import __version__

if TYPE_CHECKING:
    from mx_artifacts import errors as errors
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
    from mx_artifacts.artifacts.protocol import P2PArtifactTransfer as P2PArtifactTransfer
    from mx_artifacts.artifacts.source.publish import (
        publish_artifact_source as publish_artifact_source,
    )
    from mx_artifacts.artifacts.target.discover import (
        discover_artifact_source as discover_artifact_source,
    )
    from mx_artifacts.artifacts.target.fetch_values import FetcherSettings as FetcherSettings
    from mx_artifacts.artifacts.target.group_member import GroupWanted as GroupWanted
    from mx_artifacts.artifacts.tarred import TarredP2PArtifactTransfer as TarredP2PArtifactTransfer
    from mx_artifacts.client.central import CentralClient as CentralClient
    from mx_artifacts.core.compatibility import accelerators_compatible as accelerators_compatible
    from mx_artifacts.core.identity import SourceIdentity as SourceIdentity
    from mx_artifacts.core.identity import compute_mx_source_id as compute_mx_source_id
    from mx_artifacts.fetcher import ArtifactFetcher as ArtifactFetcher
    from mx_artifacts.identity.identify import probe_identity as probe_identity
    from mx_artifacts.install.usage import UsageReport as UsageReport
    from mx_artifacts.install.usage import usage_of as usage_of
    from mx_artifacts.kinds.registry import get_kind as get_kind
    from mx_artifacts.publisher import ArtifactPublisher as ArtifactPublisher
    from mx_artifacts.publisher import PublisherSettings as PublisherSettings
    from mx_artifacts.transport.registry import open_transport as open_transport

_FACTORIES = (
    "cute_dsl", "deep_gemm", "flashinfer", "tilelang", "torch_compile", "triton", "tvm_ffi",
)  # fmt: skip
_EXPORTS = {
    "ArtifactBundle": "artifacts.protocol",
    "ArtifactCacheRoot": "artifacts.protocol",
    "ArtifactFetcher": "fetcher",
    "ArtifactPublisher": "publisher",
    "CentralClient": "client.central",
    "FetcherSettings": "artifacts.target.fetch_values",
    "GroupWanted": "artifacts.target.group_member",
    "P2PArtifactTransfer": "artifacts.protocol",
    "PublisherSettings": "publisher",
    "SourceIdentity": "core.identity",
    "TarredP2PArtifactTransfer": "artifacts.tarred",
    "accelerators_compatible": "core.compatibility",
    "compute_mx_source_id": "core.identity",
    "UsageReport": "install.usage",
    "discover_artifact_source": "artifacts.target.discover",
    "get_kind": "kinds.registry",
    "open_transport": "transport.registry",
    "probe_identity": "identity.identify",
    "usage_of": "install.usage",
    "publish_artifact_source": "artifacts.source.publish",
    **{f"{kind}_cache_artifact_transfer": "artifacts.factories" for kind in _FACTORIES},
}

__all__ = ["__version__", "errors", *_EXPORTS]  # noqa: PLE0604 - checked in a test


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    if name == "errors":
        return importlib.import_module(f"{__name__}.errors")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
