"""Seals, announces and serves kinds as a command line states it, and shows the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mx_artifact_cli.describe import identity_facts, identity_object, skipped_groups, skipped_lines
from mx_artifact_cli.outcomes import KindsFailedError
from mx_artifact_cli.output import Output, error_object
from mx_artifact_cli.selection import SelectedKind, warn_of_unchecked
from mx_artifact_cli.text import count_of, format_bytes
from mx_artifacts.errors import MxArtifactsError

if TYPE_CHECKING:
    from mx_artifacts.identity.identify import ProbedIdentity
    from mx_artifacts.kinds.base import RankSet
    from mx_artifacts.publisher import ArtifactPublisher, PublishResult
    from mx_artifacts.worker.serving_settings import ServingSettings


@dataclass(frozen=True)
class Publishing:
    """How each kind is published. `identify` returns its identity, and those it is under too."""

    output: Output
    publisher: ArtifactPublisher
    identify: Callable[[SelectedKind], Sequence[ProbedIdentity]]
    accelerator: str | None
    require_ranks: int | None

    def publish(self, selected: SelectedKind) -> tuple[PublishResult, dict[str, Any]]:
        """Publish a kind and show it; return it and its description for programs.

        Raises:
            MxArtifactsError: as `ArtifactPublisher.publish` and the probing of identities.
        """
        kind, output = selected.kind, self.output
        probed, *others = identities = self.identify(selected)
        for each in identities:
            warn_of_unchecked(output, kind, each)
        output.note(f"sealing {kind.name}")
        published = self.publisher.publish(
            kind,
            probed.identity,
            selected.stated_roots,
            accelerator=self.accelerator or probed.accelerator,
            also=[other.identity for other in others],
            require_ranks=self.require_ranks,
        )
        described = _described(published, probed)
        _show(output, selected, probed, published, described)
        return published, described


def _show(
    output: Output,
    selected: SelectedKind,
    probed: ProbedIdentity,
    published: PublishResult,
    described: Mapping[str, Any],
) -> None:
    output.line(f"{selected.kind.name}: {selected.kind.title}")
    output.facts(identity_facts(probed.identity, probed.origins), indent="  identity  ")
    for root in described["roots"]:
        size = format_bytes(root["content_bytes"])
        output.line(f"  root      {root['path']}: {count_of(root['files'], 'file')}, {size}")
        for line in skipped_lines(root["skipped"]):
            output.line(f"            {line}")
    warn_of_uneven(output, published)
    output.facts(
        {
            "bundle": format_bytes(published.total_bytes),
            "artifact": published.artifact_id,
            "source": f"{published.mx_source_id} (worker {published.worker_id})",
            **({"also as": ", ".join(also)} if (also := published.also_source_ids) else {}),
            "endpoint": published.endpoint,
        },
        indent="  ",
    )
    output.record("published", described)


def _described(published: PublishResult, probed: ProbedIdentity) -> dict[str, Any]:
    return {
        "kind": published.kind,
        "mx_source_id": published.mx_source_id,
        "also_source_ids": list(published.also_source_ids),
        "worker_id": published.worker_id,
        "artifact_id": published.artifact_id,
        "endpoint": published.endpoint,
        "total_bytes": published.total_bytes,
        "files": published.file_count,
        "identity": identity_object(probed.identity),
        "identity_origins": dict(probed.origins),
        "roots": [
            {
                "name": root.name,
                "path": root.root,
                "files": root.report.file_count,
                "content_bytes": root.report.content_bytes,
                "bundle_bytes": root.report.bundle_bytes,
                "skipped": skipped_groups(root.report.skipped),
            }
            for root in published.roots
        ],
        "uneven_ranks": [
            {
                "directory": each.directory,
                "complete": each.complete,
                "lacking": {rank: list(names) for rank, names in each.lacking.items()},
            }
            for each in published.uneven_ranks
        ],
    }


def warn_of_uneven(output: Output, published: PublishResult) -> None:
    """Say which ranks lack what others have."""
    for ranks in published.uneven_ranks:
        output.warn(_uneven(ranks))


def _uneven(ranks: RankSet) -> str:
    listed = ", ".join(f"{rank} ({', '.join(names)})" for rank, names in ranks.lacking.items())
    return (
        f"{ranks.directory}: {len(ranks.lacking)} of {ranks.complete + len(ranks.lacking)} ranks "
        f"lack what others have: {listed}"
    )


def announce(
    output: Output,
    server: str,
    serving: ServingSettings,
    published: Sequence[Mapping[str, Any]],
    failures: Mapping[str, MxArtifactsError],
    *,
    total: int,
    waited_for: Sequence[str],
) -> None:
    """Say that everything is served; programs take this as the signal that it is.

    `serving` has the addresses found out; `waited_for` are the kinds that are published later, of
    `total`.
    """
    from mx_artifacts.node.network import is_loopback

    is_local = is_loopback(serving.listen)
    if failures:
        output.error(KindsFailedError(failures, total=total))
    if not is_local:
        output.warn(
            f"serving on {serving.listen}: anyone who reaches it can read these caches, "
            "without authentication"
        )
    output.result(
        {
            "server": server,
            "published": published,
            "failed": {kind: error_object(error) for kind, error in failures.items()},
            "waited_for": waited_for,
        }
    )
    where = " (this machine only; --listen for others)" if is_local else ""
    if serving.host != serving.listen:
        where += f", announced as {serving.host},"
    output.note(f"serving on {serving.listen}{where} until SIGINT, SIGTERM or SIGHUP")
