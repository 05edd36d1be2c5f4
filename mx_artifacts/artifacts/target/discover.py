"""Find the sources of an artifact, or say what keeps the others from fitting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from mx_artifacts import settings
from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.compatibility import (
    accelerators_compatible,
    identity_differences,
    same_kind,
)
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import (
    SourceQuery,
    SourceRef,
    SourceStatus,
    StoredWorker,
    WorkerRecord,
)
from mx_artifacts.errors import IncompatibleSourceError, NoSourceError
from mx_artifacts.install.quarantine import Quarantine
from mx_artifacts.kinds.registry import kind_name_of

MAX_EXPLAINED = 16
"""Records read to explain why nothing fits; enough for a person, bounded for a fleet."""

OrderCandidates = Callable[[Sequence[SourceRef]], Sequence[SourceRef]]
RootObjection = Callable[[WorkerRecord], str]
"""Says why the cache of a source that fits otherwise cannot be used in these roots, or ""."""
_OTHER_ROOT_HINT = (
    "use the same absolute cache root on source and target, or go on with --allow-other-root"
)

_WANTED_HINT = (
    "ask for what `mx-artifact sources list --format json` shows, or for no rank and artifact"
)
_ACCELERATOR_HINT = "publish on a node of this accelerator family, or correct --accelerator"


def no_objection(record: WorkerRecord) -> str:
    """Take every source."""
    return ""


def candidate_sources(
    client: CentralClient,
    identity: SourceIdentity,
    *,
    worker_rank: int | None = None,
    node_rank: int | None = None,
    artifact_id: str = "",
    accelerator: str = "",
    order: OrderCandidates | None = None,
    root_objection: RootObjection = no_objection,
    refused: Mapping[str, str] | None = None,
) -> Iterator[ArtifactSourceEndpoint]:
    """Yield compatible sources in order, each record fetched when it is asked for.

    `refused` maps the ids of artifacts that this node must not take to why; by default, those in
    the quarantine of MX_STATE_DIR.

    Incompatible accelerators are dropped before ordering, so that they cannot use up a target's
    attempts, and checked again on the record, which is authoritative.

    Raises:
        NoSourceError: nobody serves this model and kind.
        IncompatibleSourceError: somebody does, but none fits; `reasons` says why for each.
        MetadataError: the central server does not answer.
        ConfigurationError: the quarantine cannot be read.
    """
    if refused is None:
        refused = Quarantine(settings.STATE_DIR.read()).refusals()
    refs = client.list_sources(
        SourceQuery(status=SourceStatus.READY, worker_rank=worker_rank), identity
    )
    reasons: dict[str, str] = {}
    hint: str | None = None
    usable = []
    for ref in refs:
        if accelerators_compatible(accelerator, ref.accelerator):
            usable.append(ref)
        else:
            hint = _ACCELERATOR_HINT
            reasons[_label(ref)] = f"accelerator is {ref.accelerator}, here it is {accelerator}"
    found = False
    for ref in order(usable) if order is not None else usable:
        stored = client.get_metadata(ref.mx_source_id, ref.worker_id)
        reason, advice = _mismatch(stored, node_rank, artifact_id, accelerator)
        if stored is not None and stored.record.artifact is not None and not reason:
            reason = refused.get(stored.record.artifact.artifact_id, "")
        if stored is not None and not reason:
            reason, advice = root_objection(stored.record), _OTHER_ROOT_HINT
        if stored is None or reason:
            reasons[_label(ref)] = reason
            hint = advice or hint
            continue
        found = True
        yield _endpoint(stored)
    if not found:
        raise _nothing_found(client, identity, reasons, hint)


def discover_artifact_source(
    client: CentralClient,
    identity: SourceIdentity,
    *,
    worker_rank: int | None = None,
    node_rank: int | None = None,
    artifact_id: str = "",
    accelerator: str = "",
) -> ArtifactSourceEndpoint:
    """Return the first compatible source; raises as `candidate_sources` does."""
    return next(
        candidate_sources(
            client,
            identity,
            worker_rank=worker_rank,
            node_rank=node_rank,
            artifact_id=artifact_id,
            accelerator=accelerator,
        )
    )


def _label(ref: SourceRef | StoredWorker) -> str:
    return f"{ref.mx_source_id}/{ref.worker_id}"


def _mismatch(
    stored: StoredWorker | None, node_rank: int | None, artifact_id: str, accelerator: str
) -> tuple[str, str]:
    """Return why this record cannot be used, or "", and the next step, or ""."""
    if stored is None:
        return "its record was removed meanwhile", ""
    record = stored.record
    if record.artifact is None:
        return "it serves no artifact", ""
    if not record.worker_grpc_endpoint:
        return "it gives no worker endpoint", ""
    if artifact_id and record.artifact.artifact_id != artifact_id:
        return f"it serves artifact {record.artifact.artifact_id}", _WANTED_HINT
    if node_rank is not None and record.artifact.node_rank != node_rank:
        there = record.artifact.node_rank
        return f"its node rank is {there}, asked for is {node_rank}", _WANTED_HINT
    if not accelerators_compatible(accelerator, record.accelerator):
        reason = f"accelerator is {record.accelerator}, here it is {accelerator}"
        return reason, _ACCELERATOR_HINT
    return "", ""


def _endpoint(stored: StoredWorker) -> ArtifactSourceEndpoint:
    record = stored.record
    assert record.artifact is not None
    return ArtifactSourceEndpoint(
        mx_source_id=stored.mx_source_id,
        worker_id=stored.worker_id,
        worker_rank=record.worker_rank,
        worker_grpc_endpoint=record.worker_grpc_endpoint,
        artifact_id=record.artifact.artifact_id,
        total_size=record.artifact.total_size,
        accelerator=record.accelerator,
        node_rank=record.artifact.node_rank,
        topology=record.topology,
    )


def _nothing_found(
    client: CentralClient, identity: SourceIdentity, reasons: dict[str, str], hint: str | None
) -> NoSourceError | IncompatibleSourceError:
    what = f"the {kind_name_of(identity)} cache of model {identity.model_name!r}"
    if not reasons:
        reasons, hint = _near_misses(client, identity)
    if not reasons:
        return NoSourceError(f"no ready source serves {what}")
    listed = "; ".join(f"{source}: {reason}" for source, reason in reasons.items())
    return IncompatibleSourceError(
        f"no source of {what} fits this node: {listed}", reasons=reasons, hint=hint
    )


def _near_misses(
    client: CentralClient, identity: SourceIdentity
) -> tuple[dict[str, str], str | None]:
    """Explain ready sources of the same model and kind by the fields that differ."""
    query = SourceQuery(
        status=SourceStatus.READY, model_name=identity.model_name, limit=MAX_EXPLAINED
    )
    reasons: dict[str, str] = {}
    hint: str | None = None
    for ref in client.list_sources(query):
        stored = client.get_metadata(ref.mx_source_id, ref.worker_id)
        if stored is None or not same_kind(identity, stored.identity):
            continue
        differences = identity_differences(identity, stored.identity)
        if differences:
            reasons[_label(ref)] = ", ".join(
                f"{name} is {theirs or 'not stated'} there, {ours or 'not stated'} here"
                for name, (ours, theirs) in differences.items()
            )
        else:
            reasons[_label(ref)] = (
                f"its worker rank is {stored.record.worker_rank}, which is not the one asked for"
            )
            hint = _WANTED_HINT
    return reasons, hint
