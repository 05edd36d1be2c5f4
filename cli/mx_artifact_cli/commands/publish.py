"""`mx-artifact publish`: seals caches, announces them, and serves them until it is stopped."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from mx_artifact_cli.connect import open_client
from mx_artifact_cli.option_fields import takes
from mx_artifact_cli.options import Verb
from mx_artifact_cli.outcomes import KindsFailedError
from mx_artifact_cli.output import Output
from mx_artifact_cli.publish.options import PublishOptions
from mx_artifact_cli.publish.report import PublishReport
from mx_artifact_cli.selection import looked_at, require_present
from mx_artifact_cli.signals import stop_request
from mx_artifacts.errors import ExitCode

if TYPE_CHECKING:
    from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
    from mx_artifacts.artifacts.source.readiness import ReadinessSettings
    from mx_artifacts.client.central import CentralClient
    from mx_artifacts.observability.events import EventSink
    from mx_artifacts.publisher import ArtifactPublisher
    from mx_artifacts.workflows.publish_kinds import PublishKindsRequest
    from mx_artifacts.workflows.selected_kind import SelectedKind


@click.command("publish", cls=Verb)
@takes(PublishOptions)
@click.pass_context
def command(context: click.Context, options: PublishOptions) -> None:
    """Publish caches of this node and serve them.

    It seals the roots of each kind, announces them at the central server, and serves them until
    SIGINT, SIGTERM or SIGHUP. Then it marks its records stale and ends. If only some of several
    kinds fail, it serves the others, and the exit code is 3.

    If the central server cannot be reached yet, it waits for it (--publish-timeout).

    With --ready-url, it first waits for the engine. With --settle, it waits until the roots no
    longer change.

    With --follow, it checks the roots again and again. If they have changed, and two checks in a
    row found the same files (with --settle: if they have not changed for that time), it seals them
    again, and serves and announces the new artifact in place of the old one. If it cannot seal
    them, it continues to serve the old artifact.
    """
    output: Output = context.obj
    # Before any wait, so that a wrong name is reported at once.
    selected = options.selected()
    options.check(selected)
    publishing, readiness = options.settings()
    ready_url = readiness.url_on(options.node_rank)
    if options.takes_all and not (ready_url or options.settle or options.follow):
        require_present(selected)
    publishing.serving.check(options.server)
    with contextlib.ExitStack() as resources:
        from mx_artifact_cli.progress import progress

        events = resources.enter_context(progress(output))
        client = resources.enter_context(open_client(options.server))
        _wait_for_others(client, publishing, readiness, ready_url, events)
        if not options.follow:
            selected = kinds_to_seal(output, options, selected, readiness, events)
        publisher = _open_publisher(resources, client, publishing, events)
        code = _serve(output, options, publisher, options.request(selected), events, resources)
    context.exit(code)


def _wait_for_others(
    client: CentralClient,
    publishing: PublisherSettings,
    readiness: ReadinessSettings,
    ready_url: str,
    events: EventSink,
) -> None:
    """Wait for the central server and the engine, before anything is packed."""
    from mx_artifacts.artifacts.source.readiness import wait_until_ready
    from mx_artifacts.artifacts.source.server_wait import ServerWait

    ServerWait(publishing.publish_timeout_seconds, events=events).call(client.health)
    if ready_url:
        wait_until_ready(ready_url, timeout_seconds=readiness.timeout_seconds, events=events)


def kinds_to_seal(
    output: Output,
    options: PublishOptions,
    selected: tuple[SelectedKind, ...],
    readiness: ReadinessSettings,
    events: EventSink,
) -> tuple[SelectedKind, ...]:
    """Wait until the roots settle, with --settle; return the kinds of `selected` to seal."""
    from mx_artifacts.artifacts.source.readiness import wait_until_settled

    if options.settle:
        wait_until_settled(
            [root for each in selected for root in each.roots_to_pack()],
            settle_seconds=options.settle,
            timeout_seconds=readiness.timeout_seconds,
            events=events,
        )
    if not options.takes_all:
        return selected
    present = require_present(selected)
    for each in selected:
        if each not in present:
            output.note(f"{each.name}: nothing to publish in {looked_at(each)}")
    return present


def _open_publisher(
    resources: contextlib.ExitStack,
    client: CentralClient,
    publishing: PublisherSettings,
    events: EventSink,
) -> ArtifactPublisher:
    # After what needs no such imports.
    from mx_artifacts.publisher import ArtifactPublisher
    from mx_artifacts.transport.registry import open_transport

    transport = resources.enter_context(
        contextlib.closing(open_transport(publishing.serving.transport))
    )
    return resources.enter_context(
        ArtifactPublisher(client=client, transport=transport, settings=publishing, events=events)
    )


def _serve(
    output: Output,
    options: PublishOptions,
    publisher: ArtifactPublisher,
    request: PublishKindsRequest,
    events: EventSink,
    resources: contextlib.ExitStack,
) -> ExitCode:
    """Publish and serve until the request to stop, close `resources`, return the exit code."""
    from mx_artifacts.workflows.follow_roots import RootsFollower
    from mx_artifacts.workflows.publish_kinds import publish_kinds

    report, follower = PublishReport(output), None
    if options.follow:
        follower = RootsFollower(
            publisher,
            request,
            options.follow_settings(),
            on_published=report.show,
            events=events,
        )
        published = follower.start()
    else:
        published = publish_kinds(publisher, request, on_published=report.show, events=events)
    waited_for = follower.waited_for if follower else []
    total, failures = len(request.selected), published.failed
    if failures and total == 1:
        raise next(iter(failures.values()))
    if failures and not (published.done or waited_for):
        raise KindsFailedError(failures, total=total)
    with stop_request() as stop:
        serving = publisher.start().settings
        report.announce(options.server, serving, failures, total=total, waited_for=waited_for)
        if follower:
            follower.run(stop)
        while not stop.wait():
            pass
        output.note("stopping; marking the records of this source stale")
        resources.close()  # here, where a second SIGTERM cannot interrupt it
    return ExitCode.PARTIAL if failures else ExitCode.OK
