"""`mx-artifact fetch-and-install`: find a warm node, take its caches, install them here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mx_artifact_cli import options
from mx_artifact_cli.connect import open_client
from mx_artifact_cli.fetch.fetcher_options import (
    is_new_here,
    new_fetcher,
    source_wanted,
    transport_factory_of,
)
from mx_artifact_cli.fetch.group_options import group_options, group_wanted, warn_of_asymmetry
from mx_artifact_cli.fetch.install_report import nothing_usable_error
from mx_artifact_cli.fetch.report import show_fetched, show_plan
from mx_artifact_cli.options import Verb, is_given, parsed_option, setting_option
from mx_artifact_cli.outcomes import KindsFailedError
from mx_artifact_cli.output import Output, error_object
from mx_artifact_cli.progress import progress
from mx_artifact_cli.selection import ALL, SelectedKind, identify, select_kinds, warn_of_unchecked
from mx_artifact_cli.signals import stop_request
from mx_artifacts import settings
from mx_artifacts.errors import ConfigurationError, MxArtifactsError, NoSourceError
from mx_artifacts.parsing import parse_artifact_id, parse_wait

if TYPE_CHECKING:
    from mx_artifact_cli.fetch.follow import FetchFollower
    from mx_artifacts.core.identity import SourceIdentity
    from mx_artifacts.fetcher import ArtifactFetcher
    from mx_artifacts.identity.identify import ProbedIdentity


@click.command("fetch-and-install", cls=Verb)
@options.kind_option("those that a source serves")
@options.model_option
@options.identity_option
@options.framework_option
@options.arch_option
@options.device_option
@options.profile_option()
@options.root_option
@options.server_option
@parsed_option(
    "--wait",
    parse_wait,
    "How long to wait for a source that is not there yet, or was lost, such as 60s; 0: not at all.",
)
@click.option("--dry-run", is_flag=True, help="Say what would happen; fetch and change nothing.")
@click.option(
    "--replace", is_flag=True, help="Replace entries that the roots already hold; default: keep."
)
@click.option(
    "--follow",
    is_flag=True,
    help="Stay after the install, and fetch and install what sources have new.",
)
@setting_option(settings.FOLLOW_INTERVAL, "--follow-interval")
@click.option(
    "--seed",
    is_flag=True,
    help="Serve what is fetched to others, from its first bytes on; stay to do so.",
)
@setting_option(settings.WORKER_HOST, "--host")
@setting_option(settings.WORKER_LISTEN, "--listen")
@setting_option(settings.WORKER_GRPC_PORT, "--port")
@click.option(
    "--allow-other-root",
    is_flag=True,
    help="Go on where the source's cache root differs and the cache cannot be adapted to this one.",
)
@parsed_option("--artifact-id", parse_artifact_id, "Take this artifact only.")
@options.worker_rank_option("Take sources of this worker rank only.")
@options.node_rank_option("Take sources of this node rank only.")
@options.accelerator_option
@group_options
@setting_option(settings.TRANSFER_TIMEOUT, "--timeout")
@setting_option(settings.MAX_RATE, "--max-rate")
@setting_option(settings.COMPRESSION, "--compression")
@options.lock_timeout_option
@options.bundle_root_option
@click.option(
    "--durable",
    is_flag=True,
    help="Wait until what is installed is on the disk, as with MX_ARTIFACT_DURABLE=1.",
)
@click.pass_obj
def command(
    output: Output,
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
    dry_run: bool,
    replace: bool,
    follow: bool,
    follow_interval: float,
    seed: bool,
    **fetching: Any,
) -> None:
    """Fetch caches from a warm node and install them here.

    Discovers a source whose identity equals this node's, transfers, verifies and installs. A
    reader of the cache sees the old state or the new, never a mixture. Entries that the roots
    already hold win, unless --replace; what a crash left of one yields, where that can be seen. Of
    those that are kept and that the engine will not use as they are, each is named with the
    reason. The exit code is 3 where several kinds are named and some fail, and where nothing of a
    fetched cache will be used.

    With --group, a kind is installed on all of the group's nodes or on none, and all end with the
    same code: 0, 17, or 18 where that is not known.

    With --follow it stays once something is installed, until SIGINT, SIGTERM or SIGHUP end it with
    0. Of what ready sources serve it installs what it has not installed before, the artifact heard
    of last first, by the same rules: existing entries are kept, unless --replace. What fails is
    tried again.

    With --seed it stays likewise, and serves what it fetched to other targets, in memory
    (MX_ARTIFACT_RESIDENT_BUDGET). Those that start together with --seed read from each other.
    """
    if seed and dry_run:
        raise ConfigurationError(
            "--seed does not go with --dry-run, which fetches nothing to serve"
        )
    stray = [f"--{name}" for name in ("host", "listen", "port") if is_given(name)]
    if stray and not seed:
        raise ConfigurationError(
            f"{' and '.join(stray)} without --seed: nothing is served that could be reached there",
            hint="add --seed, or leave it out",
        )
    if follow:
        _check_followable(fetching, dry_run=dry_run)
    selected = select_kinds(kind_names, stated_roots, stated, framework)
    group = group_wanted(fetching)
    if group is not None and ALL in kind_names:
        raise ConfigurationError(
            f"--kind {ALL} differs from node to node, so a group cannot agree on it",
            hint="name the kinds, the same on all nodes",
        )
    if group is not None:  # nodes that take them in different orders would wait for each other
        selected = tuple(sorted(selected, key=lambda each: each.kind.name))
    identity_of = partial(
        identify,
        model=model,
        stated=stated,
        framework=framework,
        arch=arch,
        device=device,
        profile=profile,
    )
    will_transfer = ALL not in kind_names and (replace or any(map(is_new_here, selected)))
    done: list[dict[str, Any]] = []
    failures: dict[str, MxArtifactsError] = {}
    with (
        transport_factory_of(early=not dry_run and will_transfer) as transport_factory,
        open_client(server) as client,
        progress(output) as events,
        new_fetcher(
            client, fetching, events, transport_factory, device=device, seed=seed
        ) as fetcher,
    ):
        if ALL in kind_names and fetching["wait"]:
            identities = _known_identities(selected, identity_of)
            fetcher.wait_for_some(identities, fetching["wait"])
            fetching["wait"] = None  # nobody knows which kinds come, so none is waited for alone
        follower = _follower(output, fetcher, replace=replace) if follow else None
        for each in selected:
            try:
                probed = identity_of(each)
                warn_of_unchecked(output, each.kind, probed)
                warn_of_asymmetry(output, each, fetching)
                wanted = source_wanted(fetching, probed.accelerator)
                followed = follower.add(each, probed, wanted) if follower else None
                if dry_run:
                    plan = fetcher.plan(
                        each.kind,
                        probed.identity,
                        each.stated_roots,
                        wanted=wanted,
                        replace=replace,
                    )
                    existing = {}
                    if plan.already is None:
                        existing = fetcher.count_existing_entries(
                            each.kind, probed.identity, each.stated_roots
                        )
                    planned = show_plan(output, each, probed, plan, existing, replace=replace)
                    done.append(planned)
                else:
                    fetched = fetcher.fetch_and_install(
                        each.kind,
                        probed.identity,
                        each.stated_roots,
                        wanted=wanted,
                        replace=replace,
                        group=group,
                    )
                    done.append(show_fetched(output, probed, fetched))
                    if followed:
                        followed.has_installed(fetched)
                    if fetched.report.nothing_usable:
                        failures[each.kind.name] = nothing_usable_error(
                            each.kind.name, fetched.report
                        )
            except MxArtifactsError as error:
                if ALL in kind_names and isinstance(error, (NoSourceError, ConfigurationError)):
                    output.note(f"{each.kind.name} skipped: {error}")
                    continue
                if len(selected) == 1:
                    raise
                failures[each.kind.name] = error
                output.note(f"{each.kind.name} failed: {error}")
        seed = seed and fetcher.is_seeding  # why it is not was told
        if (follower or seed) and done:
            with stop_request() as stop:
                _show_result(output, done, failures)
                what = " and ".join(["following"] * follow + ["seeding"] * seed)
                output.note(f"{what} until SIGINT, SIGTERM or SIGHUP")
                if follower:
                    follower.run(stop, follow_interval)
                while not stop.wait():
                    pass
            return
    if not done and not failures:
        raise NoSourceError(f"no cache kind has a source for model {model!r} at {server}")
    if done:
        _show_result(output, done, failures, dry_run=dry_run)
    if failures and len(selected) == 1:
        raise next(iter(failures.values()))
    if failures:
        raise KindsFailedError(failures, total=len(selected))


def _follower(output: Output, fetcher: ArtifactFetcher, *, replace: bool) -> FetchFollower:
    from mx_artifact_cli.fetch.follow import FetchFollower

    return FetchFollower(output, fetcher, replace=replace)


def _check_followable(fetching: Mapping[str, Any], *, dry_run: bool) -> None:
    """Raise ConfigurationError for options that leave nothing to follow."""
    for flag, stated, reason in (
        ("--dry-run", dry_run, "which installs nothing that could be followed"),
        (
            "--group",
            fetching["group"],
            "whose members agree on one install, and would take the next at different times",
        ),
        ("--artifact-id", fetching["artifact_id"], "which leaves nothing new to take"),
    ):
        if stated:
            raise ConfigurationError(f"--follow does not go with {flag}, {reason}")


def _show_result(
    output: Output,
    done: Sequence[Mapping[str, Any]],
    failures: Mapping[str, MxArtifactsError],
    *,
    dry_run: bool = False,
) -> None:
    output.result(
        {
            "planned" if dry_run else "installed": done,
            "failed": {kind: error_object(error) for kind, error in failures.items()},
        }
    )


def _known_identities(
    selected: Sequence[SelectedKind], identity_of: Callable[[SelectedKind], ProbedIdentity]
) -> list[SourceIdentity]:
    """Return the identities of the kinds that are installed here."""
    identities = []
    for each in selected:
        with contextlib.suppress(ConfigurationError):
            identities.append(identity_of(each).identity)
    return identities
