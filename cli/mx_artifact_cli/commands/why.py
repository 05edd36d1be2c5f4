"""`mx-artifact why`: which source would be used here, or what keeps each from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mx_artifact_cli import options
from mx_artifact_cli.connect import open_client
from mx_artifact_cli.describe import identity_facts, identity_object, shortened
from mx_artifact_cli.options import Verb
from mx_artifact_cli.output import Output
from mx_artifact_cli.selection import ALL, SelectedKind, identify, select_kinds, warn_of_unchecked
from mx_artifact_cli.text import count_of
from mx_artifacts import parsing, settings
from mx_artifacts.errors import ConfigurationError, ExitCode
from mx_artifacts.node.environment import environment

if TYPE_CHECKING:
    from mx_artifacts.artifacts.target.explain import Candidate, Explanation
    from mx_artifacts.artifacts.target.suitability import RootObjection
    from mx_artifacts.kinds.base import CacheKind

MAX_PASSED_OVER = 8
"""Maximum number of sources shown to people that could not be compared."""


@click.command("why", cls=Verb)
@click.option(
    "--kind",
    "kind_names",
    cls=options.KindOption,
    multiple=True,  # so that a second one can be refused
    metavar="KIND",
    required=True,
    help="Cache kind.",
)
@options.parsed_option(
    "--model", parsing.parse_model_name, "Model that the cache belongs to.", metavar="NAME"
)
@options.identity_option
@options.framework_option
@options.arch_option
@options.device_option
@options.profile_option()
@options.root_option
@options.accelerator_option
@options.server_option
@click.option(
    "--key-factors",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="HERE THERE",
    help="Compare two files in which the engine says what its key is made of (inductor: vLLM's "
    "cache_key_factors.json), or directories with one each, instead of asking the central server.",
)
@click.pass_context
def command(
    context: click.Context,
    /,
    kind_names: tuple[str, ...],
    model: str | None,
    stated: Mapping[str, str],
    framework: str | None,
    arch: str | None,
    device: int,
    profile: str,
    stated_roots: Sequence[tuple[str, Path]],
    accelerator: str | None,
    server: str,
    key_factors: tuple[Path, Path] | None,
) -> None:
    """Say which source would be used here, or what keeps each from it.

    Sets this node's identity beside that of every ready source of the same kind: of the model, or,
    where nobody serves it, of any. The exit code is 0 when one would be used, 13 when none fits,
    this node has quarantined what those serve, or their cache cannot be used in its roots, and 10
    when there is none.
    """
    output: Output = context.obj
    if ALL in kind_names or len(set(kind_names)) > 1:
        raise ConfigurationError(
            f"why takes one kind, not --kind {' --kind '.join(kind_names)}",
            hint="ask for one kind after the other",
        )
    (selected,) = select_kinds(kind_names, stated_roots, stated, framework)
    if key_factors is not None:
        context.exit(_compare_factors(output, selected.kind, *key_factors))
    if model is None:
        raise ConfigurationError("the model has no name", hint="state one with --model")
    # After what needs no such imports.
    from mx_artifacts.artifacts.target.discover import target_of
    from mx_artifacts.artifacts.target.explain import explain_sources
    from mx_artifacts.artifacts.target.suitability import SourceWanted

    kind = selected.kind
    probed = identify(selected, model, stated, framework, arch=arch, device=device, profile=profile)
    warn_of_unchecked(output, kind, probed)
    with open_client(server) as client:
        wanted = SourceWanted(accelerator=accelerator or probed.accelerator)
        target = target_of(probed.identity, wanted)
        target = replace(target, root_objection=_root_objection(selected))
        explained = explain_sources(client, target)
    candidates = explained.candidates
    roots = _roots(selected)
    output.line(f"{kind.name} of model {model}: {_verdict(candidates)}")
    output.facts(identity_facts(probed.identity, probed.origins), indent="  identity  ")
    for root in roots:
        output.line(f"  root      {_described_root(root)}")
    for each in candidates:
        _show(output, kind, each, roots)
    _show_what_was_not_compared(output, explained)
    fitting = [each for each in candidates if each.fits]
    output.result(
        {
            "kind": kind.name,
            "verdict": _verdict(candidates),
            "would_be_used": [each.stored.mx_source_id for each in fitting],
            "identity": identity_object(probed.identity),
            "identity_origins": dict(probed.origins),
            "unchecked": list(probed.unchecked),
            "roots": roots,
            "candidates": [_candidate_object(kind, each) for each in candidates],
            "passed_over": dict(explained.passed_over),
            "not_looked_at": explained.not_looked_at,
        }
    )
    if not fitting:
        context.exit(ExitCode.INCOMPATIBLE if candidates else ExitCode.NO_SOURCE)


def _verdict(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return "nobody serves this kind"
    if fitting := sum(each.fits for each in candidates):
        return f"{count_of(fitting, 'source')} would be used"
    listed = count_of(len(candidates), "source")
    return f"none of {listed} would be used; the nearest {_outcome(candidates[0])}"


def _outcome(candidate: Candidate) -> str:
    """Return what a fetch would do with it, and where it would not, for how many reasons."""
    if candidate.fits:
        return "would be used"
    reasons = []
    if candidate.differences:
        reasons.append(f"differs in {count_of(len(candidate.differences), 'field')}")
    if candidate.verdict.refusal:
        reasons.append("serves an artifact that is quarantined here")
    if candidate.verdict.obstacle:
        reasons.append("cannot be used")
    return " and ".join(reasons)


def _root_objection(selected: SelectedKind) -> RootObjection:
    """Return what a fetch into this node's roots objects to sources."""
    from mx_artifacts.artifacts.factories import transfer_of_kind
    from mx_artifacts.artifacts.target.suitability import no_objection

    try:
        return transfer_of_kind(
            selected.kind,
            bundle_root=settings.BUNDLE_ROOT.read(),
            roots=selected.stated_roots,
            framework=selected.engine,
        ).root_objection
    except ConfigurationError:  # a root that nothing tells the place of; `_roots` says so
        return no_objection


def _show_what_was_not_compared(output: Output, explained: Explanation) -> None:
    for source, reason in islice(explained.passed_over.items(), MAX_PASSED_OVER):
        output.line(f"source {source} was not compared: {reason}")
    if (more := len(explained.passed_over) - MAX_PASSED_OVER) > 0:
        output.line(f"{count_of(more, 'further source')} could not be compared")
    if explained.not_looked_at:
        others = count_of(explained.not_looked_at, "further source id")
        output.line(f"{others} of other models were not looked at")


def _roots(selected: SelectedKind) -> list[dict[str, str]]:
    """Describe this node's roots: where, what decided it, and whether something is there."""
    roots = []
    for rule in selected.kind.roots:
        stated = selected.stated_roots.get(rule.name)
        name = selected.kind.root_label(rule.name)
        try:
            path, decided_by = selected.locate(rule, environment())
        except ConfigurationError as error:  # which is no reason not to compare identities
            state = f"{error}; {error.hint()}"
            roots.append({"name": name, "path": "", "decided_by": "", "state": state})
            continue
        state = "there" if path.exists() else "not there yet"
        if rule.required_identity and not stated:
            state = "off, since its path is not stated"
        roots.append({"name": name, "path": str(path), "decided_by": decided_by, "state": state})
    return roots


def _described_root(root: Mapping[str, str]) -> str:
    if not root["path"]:
        return root["state"]
    return f"{root['path']}  ({root['decided_by']}; {root['state']})"


def _show(
    output: Output, kind: CacheKind, candidate: Candidate, roots: Sequence[Mapping[str, str]]
) -> None:
    stored = candidate.stored
    source = f"{stored.mx_source_id} (worker {stored.worker_id})"
    output.line(
        f"source {source} at {stored.record.worker_grpc_endpoint}, "
        f"model {stored.identity.model_name}: {_outcome(candidate)}"
    )
    if unreadable := _unreadable(candidate):
        output.line(f"  {unreadable}")
    for reason in (candidate.verdict.refusal, candidate.verdict.obstacle):
        if reason:
            output.line(f"  {reason}")
    for difference in _differences(kind, candidate):
        output.line(f"  {difference['field']}")
        output.line(f"    here   {shortened(difference['here']) or '(not stated)'}")
        output.line(f"    there  {shortened(difference['there']) or '(not stated)'}")
        output.line(f"    {difference['advice']}")
    for name, theirs in candidate.roots.items():
        label = kind.root_label(name)
        ours = next((root for root in roots if root["name"] == label), None)
        if ours is not None and theirs != ours["path"] != "":
            output.line(f"  root {label} is {theirs} there, {ours['path']} here")
            output.line(f"    set the same on both nodes; here {ours['decided_by']} decided")


def _unreadable(candidate: Candidate) -> str:
    """Return why this node could not read from the source, or ""."""
    from mx_artifacts.artifacts.transport_labels import transports_of

    only_nixl = transports_of(candidate.stored.record.topology) == (settings.NIXL,)
    if not only_nixl or settings.TRANSPORT.read() == settings.NIXL:
        return ""
    return (
        "it is read by NIXL only, which is not allowed here: set MX_TRANSPORT=nixl where everybody "
        "in the network may be trusted, or publish with mx-artifact"
    )


def _differences(kind: CacheKind, candidate: Candidate) -> list[dict[str, str]]:
    from mx_artifacts.identity.values import advice_for

    described = []
    for name, (ours, theirs) in candidate.differences.items():
        key = name.removeprefix("extra_parameters.")
        advice = advice_for(kind, name)
        if not theirs and key in kind.strict_parameters:
            advice = "it was published under the reference's profile; try --profile reference"
        described.append({"field": key, "here": ours, "there": theirs, "advice": advice})
    return described


def _candidate_object(kind: CacheKind, candidate: Candidate) -> dict[str, Any]:
    stored = candidate.stored
    return {
        "mx_source_id": stored.mx_source_id,
        "worker_id": stored.worker_id,
        "model": stored.identity.model_name,
        "endpoint": stored.record.worker_grpc_endpoint,
        "unreadable": _unreadable(candidate),
        "fits": candidate.fits,
        "refusal": candidate.verdict.refusal,
        "obstacle": candidate.verdict.obstacle,
        "roots": {kind.root_label(name): path for name, path in candidate.roots.items()},
        "differences": _differences(kind, candidate),
    }


def _compare_factors(output: Output, kind: CacheKind, ours: Path, theirs: Path) -> ExitCode:
    """Compare two of an engine's files; both caches have the same key when no factor differs."""
    from mx_artifacts.kinds.registry import all_kinds

    factors = kind.key_factors
    if factors is None:
        those = [each.name for each in all_kinds() if each.key_factors is not None]
        raise ConfigurationError(
            f"no engine says what the key of a {kind.name} cache is made of",
            hint=f"--key-factors goes with --kind {' or '.join(those)}",
        )
    differences = [
        {"field": name, "here": here, "there": there, "advice": factors.advice_for(name)}
        for name, (here, there) in factors.compare_files(ours, theirs).items()
    ]
    if not differences:
        output.line("no factor differs: both caches have the same key")
    for difference in differences:
        output.line(difference["field"])
        output.line(f"  here   {shortened(difference['here'])}")
        output.line(f"  there  {shortened(difference['there'])}")
        output.line(f"  {difference['advice']}")
    output.result({"differences": differences})
    return ExitCode.INCOMPATIBLE if differences else ExitCode.OK
