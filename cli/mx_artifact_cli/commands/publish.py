"""`mx-artifact publish`: seal caches, announce them, serve until told to stop."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mx_artifact_cli import options
from mx_artifact_cli.connect import open_client
from mx_artifact_cli.describe import identity_facts, identity_object, skipped_groups, skipped_lines
from mx_artifact_cli.network import host_towards
from mx_artifact_cli.options import Verb, setting_option
from mx_artifact_cli.output import Output, error_object
from mx_artifact_cli.progress import progress
from mx_artifact_cli.selection import (
    Selected,
    identify,
    select_kinds,
    select_present,
    warn_of_unchecked,
)
from mx_artifact_cli.signals import on_stop_request, woken_by_signals
from mx_artifact_cli.text import count_of, format_bytes
from mx_artifacts import parsing, settings
from mx_artifacts.core.sources import PodIdentity
from mx_artifacts.errors import (
    ConfigurationError,
    ExitCode,
    KindsFailedError,
    MxArtifactsError,
)

if TYPE_CHECKING:
    from mx_artifacts.kinds.base import RankSet
    from mx_artifacts.kinds.identity import ProbedIdentity
    from mx_artifacts.publisher import ArtifactPublisher, Published, PublisherSettings

BOTH_PROFILES = ("strict", "reference")


@click.command("publish", cls=Verb)
@options.kind_option("those whose root exists and is not empty")
@options.model_option
@options.identity_option
@options.framework_option
@options.arch_option
@options.device_option
@options.profile_option(both=True)
@options.root_option
@options.server_option
@setting_option(settings.WORKER_HOST, "--host")
@setting_option(settings.WORKER_GRPC_PORT, "--port")
@options.worker_rank_option("Worker rank that is announced.", default="0")
@options.node_rank_option("Node rank that is announced.", default="0")
@options.accelerator_option
@setting_option(settings.READY_URL, "--ready-url")
@setting_option(settings.READY_TIMEOUT, "--ready-timeout")
@setting_option(settings.HEAD_ADDRESS, "--head-address")
@options.parsed_option(
    "--settle",
    parsing.parse_duration,
    "Seal when the roots have not changed for this long [s].  [default: at once]",
)
@options.parsed_option(
    "--require-ranks",
    parsing.parse_integer(1, options.UINT32_MAX),
    "Refuse to publish vLLM's compile cache unless each model has this many complete ranks.",
)
@setting_option(settings.CHUNK_SIZE, "--chunk-size")
@setting_option(settings.SLOTS, "--slots")
@options.bundle_root_option
@click.pass_context
def command(
    context: click.Context,
    /,
    kind_names: tuple[str, ...],
    model: str,
    stated: Mapping[str, str],
    framework: str | None,
    arch: str | None,
    device: int,
    profile: str,
    stated_roots: Sequence[tuple[str, Path]],
    server: str,
    accelerator: str | None,
    require_ranks: int | None,
    **serving: Any,
) -> None:
    """Publish caches of this node and serve them.

    Seals each kind's roots, announces them at the central server and serves them until SIGINT,
    SIGTERM or SIGHUP; then marks them stale and releases everything. Where several kinds are named
    and some fail, the others are served and the exit code is 3.

    With --ready-url it waits for the engine first, and with --settle until the roots do not change
    any more.
    """
    output: Output = context.obj
    wanted = select_kinds(kind_names, stated_roots, stated)  # so that a wrong name need not wait
    if require_ranks is not None and not any(each.kind.rank_sets for each in wanted):
        raise ConfigurationError("--require-ranks fits no kind that --kind names")
    ready_url = _ready_url(serving)
    if not (ready_url or serving["settle"]):
        select_present(kind_names, stated_roots, settings.environment())
    serving["host"] = serving["host"] or host_towards(server)
    with contextlib.ExitStack() as resources:
        client = resources.enter_context(open_client(server))
        client.health()  # before any byte is packed
        selected = _when_ready(output, ready_url, kind_names, stated_roots, serving)
        # After what needs no such imports.
        from mx_artifacts.publisher import ArtifactPublisher
        from mx_artifacts.transport.registry import open_transport

        events = resources.enter_context(progress(output))
        transport = resources.enter_context(contextlib.closing(open_transport()))
        publisher = resources.enter_context(
            ArtifactPublisher(
                client=client,
                transport=transport,
                settings=_settings(context, serving),
                events=events,
            )
        )
        published: list[dict[str, Any]] = []
        failures: dict[str, MxArtifactsError] = {}
        for each in selected:
            try:
                probed = [
                    identify(
                        each,
                        model,
                        stated,
                        framework,
                        arch=arch,
                        device=device,
                        profile=one,
                    )
                    for one in (BOTH_PROFILES if profile == "both" else (profile,))
                ]
                published.append(
                    _publish(output, publisher, each, probed, accelerator, require_ranks)
                )
            except MxArtifactsError as error:
                if len(selected) == 1:
                    raise
                failures[each.kind.name] = error
        if failures and not published:
            raise KindsFailedError(failures, total=len(selected))
        requests: list[None] = []
        with woken_by_signals() as wait, on_stop_request(lambda: requests.append(None)):
            _announce(output, server, serving["host"], published, failures, len(selected))
            while not requests:
                wait()
            output.note("stopping: marking sources stale")
            resources.close()  # here, where a second SIGTERM cannot interrupt it
    context.exit(ExitCode.PARTIAL if failures else ExitCode.OK)


def _ready_url(serving: Mapping[str, Any]) -> str:
    """Return the URL to poll, or "" where none was given."""
    if not serving["ready_url"]:
        return ""
    from mx_artifacts.artifacts.readiness import health_url

    return health_url(
        serving["ready_url"],
        node_rank=serving["node_rank"],
        head_address=serving["head_address"],
    )


def _when_ready(
    output: Output,
    ready_url: str,
    kind_names: Sequence[str],
    stated_roots: Sequence[tuple[str, Path]],
    serving: Mapping[str, Any],
) -> tuple[Selected, ...]:
    """Wait for the engine and its caches, then return the kinds that there are."""
    timeout_seconds, environment = serving["ready_timeout"], settings.environment()
    if ready_url or serving["settle"]:
        from mx_artifacts.artifacts.readiness import wait_until_ready, wait_until_settled
    if ready_url:
        output.note(f"waiting for {ready_url}")
        wait_until_ready(ready_url, timeout_seconds=timeout_seconds)
    if serving["settle"]:
        output.note("waiting until the caches do not change any more")
        wait_until_settled(
            [
                (root, each.kind.pack)
                for each in select_kinds(kind_names, stated_roots)
                for root in each.roots(environment).values()
            ],
            settle_seconds=serving["settle"],
            timeout_seconds=timeout_seconds,
        )
    present = select_present(kind_names, stated_roots, environment)
    for each in select_kinds(kind_names, stated_roots):
        if each not in present:
            output.note(f"{each.kind.name}: nothing to publish in {_looked_at(each)}")
    return present


def _looked_at(selected: Selected) -> str:
    """Say where the primary root is and what decided so, such as an engine's variable."""
    primary = selected.kind.roots[0]
    stated = selected.stated_roots.get(primary.name)
    path, decided_by = (stated, "--root") if stated else primary.locate(settings.environment())
    return f"{path} ({decided_by})"


def _settings(context: click.Context, serving: Mapping[str, Any]) -> PublisherSettings:
    from mx_artifacts.artifacts.publish import ServingLimits
    from mx_artifacts.publisher import PublisherSettings

    by_flag = context.get_parameter_source("port") is click.core.ParameterSource.COMMANDLINE
    return PublisherSettings(
        bundle_root=serving["bundle_root"],
        host=serving["host"],
        port=serving["port"],
        # A port that someone chose may be open in a firewall; another one would not be.
        strict_port=by_flag or settings.WORKER_GRPC_PORT.stated() is not None,
        worker_rank=serving["worker_rank"],
        node_rank=serving["node_rank"],
        chunk_size_bytes=serving["chunk_size"],
        lease_ttl_seconds=settings.LEASE_TTL.read(),
        resident_budget_bytes=settings.RESIDENT_BUDGET.read(),
        limits=ServingLimits(
            slots=serving["slots"],
            heartbeat_interval_seconds=settings.HEARTBEAT_INTERVAL.read(),
        ),
        pod=PodIdentity(
            name=settings.POD_NAME.read(),
            uid=settings.POD_UID.read(),
            namespace=settings.POD_NAMESPACE.read(),
        ),
    )


def _publish(
    output: Output,
    publisher: ArtifactPublisher,
    selected: Selected,
    identities: Sequence[ProbedIdentity],
    accelerator: str | None,
    require_ranks: int | None,
) -> dict[str, Any]:
    kind = selected.kind
    probed, *others = identities
    for each in identities:
        warn_of_unchecked(output, kind, each)
    output.note(f"sealing {kind.name}")
    published = publisher.publish(
        kind,
        probed.identity,
        selected.stated_roots,
        accelerator=accelerator or probed.accelerator,
        also=[other.identity for other in others],
        require_ranks=require_ranks,
    )
    output.line(f"{kind.name}: {kind.title}")
    output.facts(identity_facts(probed.identity, probed.origins), indent="  identity  ")
    described = _described(published, probed)
    for root in described["roots"]:
        size = format_bytes(root["content_bytes"])
        output.line(f"  root      {root['path']}: {count_of(root['files'], 'file')}, {size}")
        for line in skipped_lines(root["skipped"]):
            output.line(f"            {line}")
    for ranks in published.uneven_ranks:
        output.warn(_uneven(ranks))
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
    return described


def _described(published: Published, probed: ProbedIdentity) -> dict[str, Any]:
    return {
        "kind": published.kind,
        "mx_source_id": published.mx_source_id,
        "also_source_ids": list(published.also_source_ids),
        "worker_id": published.worker_id,
        "artifact_id": published.artifact_id,
        "endpoint": published.endpoint,
        "total_bytes": published.total_bytes,
        "files": sum(root.report.file_count for root in published.roots),
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


def _uneven(ranks: RankSet) -> str:
    listed = ", ".join(f"{rank} ({', '.join(names)})" for rank, names in ranks.lacking.items())
    return (
        f"{ranks.directory}: {len(ranks.lacking)} of {ranks.complete + len(ranks.lacking)} ranks "
        f"lack what others have: {listed}"
    )


def _announce(
    output: Output,
    server: str,
    host: str,
    published: Sequence[Mapping[str, Any]],
    failures: Mapping[str, MxArtifactsError],
    total: int,
) -> None:
    """Say that everything is served; programs take this as the signal that it is."""
    from mx_artifacts.wire.listen import is_loopback

    if failures:
        output.error(KindsFailedError(failures, total=total))
    if not is_loopback(host):
        output.warn(
            f"serving on {host}: anyone who reaches it can read these caches, "
            "without authentication"
        )
    output.result(
        {
            "server": server,
            "published": published,
            "failed": {kind: error_object(error) for kind, error in failures.items()},
        }
    )
    where = " (this machine only; --host for others)" if is_loopback(host) else ""
    output.note(f"serving on {host}{where} until SIGINT, SIGTERM or SIGHUP")
