"""The factory helpers: each makes the transfer of a cache kind, with roots from the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from mx_artifacts import settings
from mx_artifacts.artifacts.protocol import DEFAULT_LOCK_TIMEOUT_SECONDS, ArtifactCacheRoot
from mx_artifacts.artifacts.tarred import TarredP2PArtifactTransfer
from mx_artifacts.core.identity import AnyBackendFramework
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.memory.budget import BundleBudget
from mx_artifacts.node.environment import environment
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.probes.engines import engine_here

AnyPath = str | Path


def transfer_of_kind(
    kind: CacheKind,
    *,
    bundle_root: Path,
    roots: Mapping[str, Path] | None = None,
    framework: AnyBackendFramework | None = None,
    chunk_size: int | None = None,
    lock_timeout_seconds: float = DEFAULT_LOCK_TIMEOUT_SECONDS,
    durable: bool | None = None,
    memory: BundleBudget | None = None,
    events: EventSink = ignore_events,
) -> TarredP2PArtifactTransfer:
    """Return a transfer whose source and target roots are this node's roots of `kind`.

    `roots` overrides single roots by name ("" is the primary root); a root that is on only where
    its path is stated (`RootRule.required_identity`) must be among them. The others are where the
    engine `framework` looks, by default the one that is installed here; as the identity's
    `backend_framework` has it, UNKNOWN is no engine.

    Raises:
        ConfigurationError: `roots` names a root that the kind does not have.
    """
    chosen = dict(roots or {})
    cache_roots = []
    env, engine = environment(), engine_here() if framework is None else framework
    for rule in kind.roots:
        stated = chosen.pop(rule.name, None)
        off = bool(rule.required_identity) and stated is None
        path = stated or rule.locate(env, engine)[0]
        label = kind.root_label(rule.name)
        cache_roots.append(ArtifactCacheRoot(label, path, path, rule.optional, off))
    if chosen:
        raise ConfigurationError(f"cache kind {kind.name!r} has no root named {sorted(chosen)}")
    return TarredP2PArtifactTransfer(
        name=kind.name,
        mx_source_type=kind.source_type,
        roots=tuple(cache_roots),
        bundle_root=bundle_root,
        chunk_size=chunk_size,
        kind=kind,
        framework=engine,
        lock_timeout_seconds=lock_timeout_seconds,
        durable=durable,
        memory=memory,
        events=events,
    )


class ArtifactTransferFactory(Protocol):
    """Makes the transfer of one cache kind."""

    def __call__(
        self,
        source_root: AnyPath | None = None,
        target_root: AnyPath | None = None,
        bundle_root: AnyPath | None = None,
        *,
        chunk_size: int | None = None,
        additional_roots: Sequence[ArtifactCacheRoot] = (),
        framework: AnyBackendFramework | None = None,
    ) -> TarredP2PArtifactTransfer:
        """Return the kind's transfer.

        Args:
            source_root: where a source reads the cache; default: by the kind's rules.
            target_root: where a target installs it; default: by the kind's rules.
            bundle_root: for bundles that exceed the memory; default: MX_ARTIFACT_BUNDLE_ROOT.
            chunk_size: bytes; default: MX_ARTIFACT_TRANSFER_CHUNK_SIZE.
            additional_roots: further directories of the same artifact. When neither roots nor
                these are given, they are the kind's own further roots, but for those that are
                off unless their path is stated, here.
            framework: the engine whose rules those are; default: the one installed here.

        Raises:
            ConfigurationError: root names clash.
        """
        ...


def _factory(kind_name: str) -> ArtifactTransferFactory:
    def artifact_transfer(
        source_root: AnyPath | None = None,
        target_root: AnyPath | None = None,
        bundle_root: AnyPath | None = None,
        *,
        chunk_size: int | None = None,
        additional_roots: Sequence[ArtifactCacheRoot] = (),
        framework: AnyBackendFramework | None = None,
    ) -> TarredP2PArtifactTransfer:
        kind = get_kind(kind_name)
        env, engine = environment(), engine_here() if framework is None else framework
        here, *others = [
            ArtifactCacheRoot(
                kind.root_label(rule.name), path, path, rule.optional, bool(rule.required_identity)
            )
            for rule in kind.roots
            for path in [rule.locate(env, engine)[0]]
        ]
        primary = ArtifactCacheRoot(
            kind.name,
            Path(source_root) if source_root is not None else here.source_root,
            Path(target_root) if target_root is not None else here.target_root,
        )
        by_rules = source_root is None and target_root is None and not additional_roots
        return TarredP2PArtifactTransfer(
            name=kind.name,
            mx_source_type=kind.source_type,
            roots=(primary, *(others if by_rules else additional_roots)),
            bundle_root=Path(bundle_root) if bundle_root else settings.BUNDLE_ROOT.read(),
            chunk_size=chunk_size if chunk_size is not None else settings.CHUNK_SIZE.read(),
            kind=kind,
            framework=engine,
        )

    artifact_transfer.__doc__ = (
        f"Return the transfer of the kind {kind_name}; arguments as in `ArtifactTransferFactory`."
    )
    return artifact_transfer


torch_compile_cache_artifact_transfer = _factory("inductor")
triton_cache_artifact_transfer = _factory("triton")
deep_gemm_cache_artifact_transfer = _factory("deep_gemm")
tilelang_cache_artifact_transfer = _factory("tilelang")
cute_dsl_cache_artifact_transfer = _factory("cute_dsl")
flashinfer_cache_artifact_transfer = _factory("flashinfer")
tvm_ffi_cache_artifact_transfer = _factory("tvm_ffi")
