"""Reports what `publish` serves, for humans and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mx_artifact_cli.describe import identity_facts, identity_object, skipped_groups, skipped_lines
from mx_artifact_cli.outcomes import KindsFailedError
from mx_artifact_cli.output import Output, error_object
from mx_artifact_cli.text import count_of, format_bytes
from mx_artifacts.errors import MxArtifactsError

if TYPE_CHECKING:
    from mx_artifacts.identity.identify import ProbedIdentity
    from mx_artifacts.kinds.base import RankSet
    from mx_artifacts.publisher import PublishResult
    from mx_artifacts.worker.serving_settings import ServingSettings
    from mx_artifacts.workflows.publish_kinds import PublishedKind


class PublishReport:
    """Shows what is published; keeps the descriptions of what was published first, for `announce`.

    When a kind is published again, it shows the values before and after.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._described: list[Mapping[str, Any]] = []

    def show(self, published: PublishedKind) -> None:
        """Show a kind that is now served."""
        if published.before is None:
            self._described.append(_show_published(self._output, published))
        else:
            _show_republished(self._output, published.before, published.result)

    def announce(
        self,
        server: str,
        serving: ServingSettings,
        failures: Mapping[str, MxArtifactsError],
        *,
        total: int,
        waited_for: Sequence[str],
    ) -> None:
        """Print the result: everything is served. Programs wait for this result.

        `serving` has the final addresses. `waited_for` are the kinds that will be published later;
        `total` is the number of all kinds.
        """
        from mx_artifacts.node.network import is_loopback

        is_local = is_loopback(serving.listen)
        if failures:
            self._output.error(KindsFailedError(failures, total=total))
        if not is_local:
            self._output.warn(
                f"serving on {serving.listen} without authentication: everyone who can reach this "
                "address can read these caches"
            )
        self._output.result(
            {
                "server": server,
                "published": self._described,
                "failed": {kind: error_object(error) for kind, error in failures.items()},
                "waited_for": waited_for,
            }
        )
        where = " (for this machine only; for other machines, use --listen)" if is_local else ""
        if serving.host != serving.listen:
            where += f", announced as {serving.host},"
        self._output.note(f"serving on {serving.listen}{where} until SIGINT, SIGTERM or SIGHUP")


def _show_published(output: Output, published: PublishedKind) -> dict[str, Any]:
    """Show a kind that is now served; return its description for programs."""
    selected, probed, result = published.selected, published.probed, published.result
    described = _described(result, probed)
    output.line(f"{selected.name}: {selected.kind.title}")
    output.facts(identity_facts(probed.identity, probed.origins), indent="  identity  ")
    for root in described["roots"]:
        size = format_bytes(root["content_bytes"])
        output.line(f"  root      {root['path']}: {count_of(root['files'], 'file')}, {size}")
        for line in skipped_lines(root["skipped"]):
            output.line(f"            {line}")
    _warn_of_uneven(output, result)
    output.facts(
        {
            "bundle": format_bytes(result.total_bytes),
            "artifact": result.artifact_id,
            "source": f"{result.mx_source_id} (worker {result.worker_id})",
            **({"also as": ", ".join(also)} if (also := result.also_source_ids) else {}),
            "endpoint": result.endpoint,
        },
        indent="  ",
    )
    output.record("published", described)
    return described


def _show_republished(output: Output, before: PublishResult, now: PublishResult) -> None:
    """Show the new artifact of a kind beside the old one that it replaces."""
    size = f"{format_bytes(before.total_bytes)} -> {format_bytes(now.total_bytes)}"
    output.line(
        f"{now.kind}: published again: {before.file_count} -> "
        f"{count_of(now.file_count, 'file')}, {size}, "
        f"artifact {before.artifact_id} -> {now.artifact_id}"
    )
    _warn_of_uneven(output, now)
    output.record("republished", {**_summary(now), "before": _summary(before)})


def _summary(published: PublishResult) -> Mapping[str, Any]:
    return {
        "kind": published.kind,
        "mx_source_id": published.mx_source_id,
        "worker_id": published.worker_id,
        "artifact_id": published.artifact_id,
        "total_bytes": published.total_bytes,
        "files": published.file_count,
    }


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


def _warn_of_uneven(output: Output, published: PublishResult) -> None:
    """Print a warning for ranks that lack files of other ranks."""
    for ranks in published.uneven_ranks:
        output.warn(_uneven(ranks))


def _uneven(ranks: RankSet) -> str:
    listed = ", ".join(f"{rank} ({', '.join(names)})" for rank, names in ranks.lacking.items())
    return (
        f"{ranks.directory}: {len(ranks.lacking)} of {ranks.complete + len(ranks.lacking)} ranks "
        f"lack files that other ranks have: {listed}"
    )
