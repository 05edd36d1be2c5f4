"""`mx-artifact publish`: seal caches, announce them, serve until stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mx_artifact_cli import options
from mx_artifact_cli.connect import open_client
from mx_artifact_cli.options import Verb, setting_flags, setting_option
from mx_artifact_cli.outcomes import KindsFailedError
from mx_artifact_cli.output import Output
from mx_artifact_cli.progress import progress
from mx_artifact_cli.publish.publishing import Publishing, announce
from mx_artifact_cli.selection import (
    ALL,
    SelectedKind,
    identify,
    looked_at,
    present_of,
    select_kinds,
)
from mx_artifact_cli.signals import stop_request
from mx_artifacts import parsing, settings
from mx_artifacts.errors import ConfigurationError, ExitCode, MxArtifactsError
from mx_artifacts.node.environment import environment

if TYPE_CHECKING:
    from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
    from mx_artifacts.artifacts.source.readiness import ReadinessSettings
    from mx_artifacts.identity.identify import ProbedIdentity

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
@setting_option(settings.WORKER_LISTEN, "--listen")
@setting_option(settings.WORKER_GRPC_PORT, "--port")
@setting_option(settings.PUBLISH_TIMEOUT, "--publish-timeout")
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
@click.option(
    "--follow",
    is_flag=True,
    help="Wait for roots that are not there yet, and publish again when they have changed.",
)
@setting_option(settings.FOLLOW_INTERVAL, "--follow-interval")
@setting_option(settings.CHUNK_SIZE, "--chunk-size")
@setting_option(settings.SLOTS, "--slots")
@setting_option(settings.MAX_RATE, "--max-rate")
@setting_option(settings.COMPRESSION, "--compression")
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
    follow: bool,
    follow_interval: float,
    **serving: Any,
) -> None:
    """Publish caches of this node and serve them.

    Seals each kind's roots, announces them at the central server and serves them until SIGINT,
    SIGTERM or SIGHUP; then marks them stale and releases everything. Where several kinds are named
    and some fail, the others are served and the exit code is 3.

    A central server that cannot be reached yet is waited for (--publish-timeout).

    With --ready-url it waits for the engine first, and with --settle until the roots do not change
    any more.

    With --follow it goes on looking at the roots: when they have changed, and two looks in a row
    have found them alike (or they have not changed for --settle), they are sealed again, and
    served and announced in the place of what was. What cannot be sealed leaves that as it is.
    """
    output: Output = context.obj
    wanted = select_kinds(kind_names, stated_roots, stated, framework)  # a wrong name need not wait
    if require_ranks is not None and not any(each.kind.rank_sets for each in wanted):
        raise ConfigurationError("--require-ranks fits no kind that --kind names")
    publishing, readiness = _settings(serving, device)
    ready_url = readiness.url_on(publishing.node_rank)
    if ALL in kind_names and not (ready_url or serving["settle"] or follow):
        present_of(wanted, environment())
    publishing.serving.check(server)
    with contextlib.ExitStack() as resources:
        from mx_artifacts.artifacts.source.server_wait import ServerWait

        events = resources.enter_context(progress(output))
        client = resources.enter_context(open_client(server))
        wait = ServerWait(publishing.publish_timeout_seconds, events=events)
        wait.call(client.health)  # before any byte is packed
        if follow:
            _wait_for_engine(output, ready_url, readiness)
            selected = wanted
        else:
            selected = _when_ready(
                output,
                ready_url,
                readiness,
                wanted,
                settle_seconds=serving["settle"],
                only_present=ALL in kind_names,
            )
        # After what needs no such imports.
        from mx_artifacts.publisher import ArtifactPublisher
        from mx_artifacts.transport.registry import open_transport

        transport = resources.enter_context(
            contextlib.closing(open_transport(publishing.serving.transport))
        )
        publisher = resources.enter_context(
            ArtifactPublisher(
                client=client, transport=transport, settings=publishing, events=events
            )
        )

        def identities(each: SelectedKind) -> list[ProbedIdentity]:
            return [
                identify(each, model, stated, framework, arch=arch, device=device, profile=one)
                for one in (BOTH_PROFILES if profile == "both" else (profile,))
            ]

        kinds = Publishing(output, publisher, identities, accelerator, require_ranks)
        follower = None
        if follow:
            from mx_artifact_cli.publish.follow import PublishFollower

            follower = PublishFollower(
                kinds,
                interval_seconds=follow_interval,
                settle_seconds=serving["settle"] or 0.0,
                patience_seconds=readiness.timeout_seconds,
            )
        published: list[dict[str, Any]] = []
        failures: dict[str, MxArtifactsError] = {}
        for each in selected:
            try:
                described = follower.add(each) if follower else kinds.publish(each)[1]
                published += [described] if described else []
            except MxArtifactsError as error:
                if len(selected) == 1:
                    raise
                failures[each.kind.name] = error
        waited_for = follower.waited_for if follower else []
        if failures and not (published or waited_for):
            raise KindsFailedError(failures, total=len(selected))
        with stop_request() as stop:
            announce(
                output,
                server,
                publisher.start().settings,
                published,
                failures,
                total=len(selected),
                waited_for=waited_for,
            )
            if follower:
                follower.run(stop)
            while not stop.wait():
                pass
            output.note("stopping: marking sources stale")
            resources.close()  # here, where a second SIGTERM cannot interrupt it
    context.exit(ExitCode.PARTIAL if failures else ExitCode.OK)


def _settings(
    serving: Mapping[str, Any], device: int
) -> tuple[PublisherSettings, ReadinessSettings]:
    """Return what options and environment say of publishing, and of the engine's readiness."""
    from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
    from mx_artifacts.artifacts.source.readiness import ReadinessSettings

    flags = setting_flags()
    publishing = PublisherSettings.from_environment(
        flags=flags,
        worker_rank=serving["worker_rank"],
        node_rank=serving["node_rank"],
        device_index=device,
    )
    return publishing, ReadinessSettings.from_environment(flags=flags)


def _wait_for_engine(output: Output, ready_url: str, readiness: ReadinessSettings) -> None:
    if ready_url:
        from mx_artifacts.artifacts.source.readiness import wait_until_ready

        output.note(f"waiting for {ready_url}")
        wait_until_ready(ready_url, timeout_seconds=readiness.timeout_seconds)


def _when_ready(
    output: Output,
    ready_url: str,
    readiness: ReadinessSettings,
    wanted: tuple[SelectedKind, ...],
    *,
    settle_seconds: float | None,
    only_present: bool,
) -> tuple[SelectedKind, ...]:
    """Wait for the engine and its caches, then return those of `wanted` that are to be sealed."""
    env = environment()
    _wait_for_engine(output, ready_url, readiness)
    if settle_seconds:
        from mx_artifacts.artifacts.source.readiness import wait_until_settled

        output.note("waiting until the caches do not change any more")
        wait_until_settled(
            [(root, each.kind.pack) for each in wanted for root in each.roots(env).values()],
            settle_seconds=settle_seconds,
            timeout_seconds=readiness.timeout_seconds,
        )
    if not only_present:
        return wanted
    present = present_of(wanted, env)
    for each in wanted:
        if each not in present:
            output.note(f"{each.kind.name}: nothing to publish in {looked_at(each)}")
    return present
