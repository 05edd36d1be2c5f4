"""Finds the sources of an artifact, or says why no source fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from mx_artifacts import settings
from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint
from mx_artifacts.artifacts.target.explain import MAX_EXPLAINED, KnownIdentities, explain_sources
from mx_artifacts.artifacts.target.record_reader import RecordReader
from mx_artifacts.artifacts.target.source_order import order_of_settings
from mx_artifacts.artifacts.target.suitability import SourceWanted, Target, Verdict, label_of
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import SourceQuery, SourceRef, SourceStatus, StoredWorker
from mx_artifacts.errors import (
    BackendUnavailableError,
    IncompatibleSourceError,
    MxArtifactsError,
    NoSourceError,
)
from mx_artifacts.install.quarantine import Quarantine
from mx_artifacts.kinds.registry import kind_name_of
from mx_artifacts.runtime.deadline import Deadline

OrderCandidates = Callable[[Sequence[SourceRef]], Sequence[SourceRef]]


def candidate_sources(
    client: CentralClient,
    target: Target,
    *,
    order: OrderCandidates | None = None,
    known: KnownIdentities | None = None,
    deadline: Deadline | None = None,
) -> Iterator[ArtifactSourceEndpoint]:
    """Yield the sources that fit `target`, each record read only when its source is asked for.

    Sources that do not fit according to the listing are dropped before ordering, so that they do
    not use up the attempts of the target. The record, which is authoritative, is judged again. A
    record that cannot be read is skipped.

    Args:
        order: puts sources in the order in which they are yielded; default: the policy of
            MX_P2P_SOURCE_SELECTOR.
        known: identities by source id, for a caller that calls this repeatedly.
        deadline: time after which no further record is read.

    Raises:
        NoSourceError: no source serves this model and kind.
        IncompatibleSourceError: there are sources, but none fits; `reasons` has the reason for
            each.
        MxArtifactsError: the central server does not answer, or none that fits was found and some
            record could not be read.
    """
    query = SourceQuery(status=SourceStatus.READY, worker_rank=target.wanted.worker_rank)
    misses: dict[str, Verdict] = {}
    usable = []
    for ref in client.list_sources(query, target.identity):
        verdict = target.judge_row(ref)
        if verdict.fits:
            usable.append(ref)
        else:
            misses[label_of(ref)] = verdict
    records = RecordReader(client)
    found = False
    for ref in (order or order_of_settings())(usable):
        if not records.may_read:
            break
        if deadline is not None and deadline.passed:
            if found:
                return
            raise BackendUnavailableError(
                f"after {deadline.budget_seconds:g} s the central server has returned no source "
                f"of model {target.identity.model_name!r} that fits",
                hint="allow more time with MX_SOURCE_QUERY_TIMEOUT, or find out why the server is "
                "slow",
            )
        try:
            stored = records.read(ref)
        except MxArtifactsError:
            if found:
                return
            raise
        if stored is None:
            continue
        verdict = target.judge(stored)
        if verdict.fits:
            found = True
            yield _endpoint(stored)
        else:
            misses[label_of(ref)] = verdict
    if found:
        return
    for error in records.failures.values():
        raise error
    raise _nothing_found(client, target, misses, known)


def target_of(identity: SourceIdentity, wanted: SourceWanted) -> Target:
    """Return a target that takes nothing which is in the quarantine of MX_STATE_DIR.

    Raises:
        ConfigurationError: the quarantine cannot be read.
    """
    return Target(identity, wanted, Quarantine(settings.STATE_DIR.read()).refusals())


def discover_artifact_source(
    client: CentralClient,
    identity: SourceIdentity,
    *,
    worker_rank: int | None = None,
    node_rank: int | None = None,
    artifact_id: str = "",
    accelerator: str = "",
) -> ArtifactSourceEndpoint:
    """Return the first compatible source by the policy of MX_P2P_SOURCE_SELECTOR.

    Raises as `candidate_sources` does, and ConfigurationError where the quarantine of MX_STATE_DIR
    cannot be read.
    """
    wanted = SourceWanted(worker_rank, node_rank, artifact_id, accelerator)
    return next(candidate_sources(client, target_of(identity, wanted)))


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
    client: CentralClient,
    target: Target,
    misses: Mapping[str, Verdict],
    known: KnownIdentities | None,
) -> NoSourceError | IncompatibleSourceError:
    """Explain by the sources of this identity, or else by those of the same model and kind."""
    what = f"the {kind_name_of(target.identity)} cache of model {target.identity.model_name!r}"
    if not misses:
        explained = explain_sources(client, target, other_models=False, known=known)
        misses = {label_of(each.stored): each.verdict for each in explained.candidates}
    # One that fits was published after it was looked for, so that trying again helps.
    if any(verdict.fits for verdict in misses.values()) or not misses:
        return NoSourceError(f"no ready source serves {what}")
    reasons = {label: verdict.reason for label, verdict in misses.items()}
    hints = (verdict.hint for verdict in misses.values() if verdict.hint)
    shown = islice(reasons.items(), MAX_EXPLAINED)
    listed = "; ".join(f"{label}: {reason}" for label, reason in shown)
    if len(reasons) > MAX_EXPLAINED:
        listed += f"; and {len(reasons) - MAX_EXPLAINED} more"
    return IncompatibleSourceError(
        f"no source of {what} fits this node: {listed}", reasons=reasons, hint=next(hints, None)
    )
