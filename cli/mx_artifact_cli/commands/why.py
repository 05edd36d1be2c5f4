"""`mx-artifact why`: says which source this node would use, or why it can use none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mx_artifact_cli import options as shared
from mx_artifact_cli.connect import open_client
from mx_artifact_cli.describe import identity_facts, identity_object, shortened
from mx_artifact_cli.option_fields import nested, option, takes
from mx_artifact_cli.option_groups import IdentityOptions
from mx_artifact_cli.options import Verb
from mx_artifact_cli.output import Output
from mx_artifact_cli.selection import ALL, identify, select_kinds
from mx_artifact_cli.text import count_of
from mx_artifacts import parsing
from mx_artifacts.errors import ConfigurationError, ExitCode

if TYPE_CHECKING:
    from mx_artifacts.artifacts.target.explain import Candidate, Explanation
    from mx_artifacts.kinds.base import CacheKind
    from mx_artifacts.workflows.explain_kind import RootHere

MAX_PASSED_OVER = 8
"""Maximum number of sources shown to humans that could not be compared."""


@dataclass(frozen=True)
class WhyOptions:
    """What `why` is asked for."""

    kind_names: tuple[str, ...] = option(
        click.option(
            "--kind",
            "kind_names",
            cls=shared.KindOption,
            multiple=True,  # so that a second one can be refused
            metavar="KIND",
            required=True,
            help="Cache kind.",
        )
    )
    model: str | None = option(
        shared.parsed_option(
            "--model",
            parsing.parse_model_name,
            "Model to which the cache belongs.",
            metavar="NAME",
        )
    )
    identity: IdentityOptions = nested(IdentityOptions)
    profile: str = option(shared.profile_option())
    stated_roots: tuple[tuple[str, Path], ...] = option(shared.root_option)
    accelerator: str | None = option(shared.accelerator_option)
    server: str = option(shared.server_option)
    key_factors: tuple[Path, Path] | None = option(
        click.option(
            "--key-factors",
            nargs=2,
            type=click.Path(path_type=Path),
            metavar="HERE THERE",
            help="Compare two files in which the engine wrote the factors of its cache key "
            "(inductor: "
            "vLLM's cache_key_factors.json), or two directories with one such file each. The "
            "central server is not asked.",
        )
    )


@click.command("why", cls=Verb)
@takes(WhyOptions)
@click.pass_context
def command(context: click.Context, options: WhyOptions) -> None:
    """Say which source this node would use, or why it can use none.

    It compares the identity of this node with that of every ready source of the same kind and
    model; if no source serves the model, with sources of any model. The exit code is 0 if a source
    would be used and 10 if there is no source. It is 13 if no source fits, if this node has
    quarantined their artifacts, or if their caches cannot be used in the roots of this node.
    """
    output: Output = context.obj
    if ALL in options.kind_names or len(set(options.kind_names)) > 1:
        raise ConfigurationError(
            f"why takes one kind, not --kind {' --kind '.join(options.kind_names)}",
            hint="run it once for each kind",
        )
    (selected,) = select_kinds(
        options.kind_names,
        options.stated_roots,
        options.identity.stated,
        options.identity.framework,
    )
    if options.key_factors is not None:
        context.exit(_compare_factors(output, selected.kind, *options.key_factors))
    model, kind = options.model, selected.kind
    if model is None:
        raise ConfigurationError("why needs the name of a model", hint="state it with --model")
    # After what needs no such imports.
    from mx_artifacts.artifacts.target.suitability import SourceWanted
    from mx_artifacts.workflows.explain_kind import explain_kind, roots_here

    probed = identify(selected, model, options.identity, options.profile)
    if probed.unchecked:
        from mx_artifact_cli.event_notes import EventNotes
        from mx_artifacts.observability.catalogue import IdentityUnchecked

        EventNotes(output)(IdentityUnchecked(kind.name, probed.unchecked))
    with open_client(options.server) as client:
        wanted = SourceWanted(accelerator=options.accelerator or "")
        explained = explain_kind(client, selected, probed, wanted)
    candidates = explained.candidates
    roots = roots_here(selected)
    root_objects = [_root_object(each) for each in roots]
    output.line(f"{kind.name} of model {model}: {_verdict(candidates)}")
    output.facts(identity_facts(probed.identity, probed.origins), indent="  identity  ")
    for root in root_objects:
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
            "roots": root_objects,
            "candidates": [_candidate_object(kind, each) for each in candidates],
            "passed_over": dict(explained.passed_over),
            "not_looked_at": explained.not_looked_at,
        }
    )
    if not fitting:
        context.exit(ExitCode.INCOMPATIBLE if candidates else ExitCode.NO_SOURCE)


def _verdict(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return "no source serves this kind"
    if fitting := sum(each.fits for each in candidates):
        return f"{count_of(fitting, 'source')} would be used"
    listed = count_of(len(candidates), "source")
    return f"none of {listed} would be used; the most similar one {_outcome(candidates[0])}"


def _outcome(candidate: Candidate) -> str:
    """Return whether a fetch would use the source; if not, the kinds of reasons."""
    if candidate.fits:
        return "would be used"
    reasons = []
    if candidate.differences:
        reasons.append(f"differs in {count_of(len(candidate.differences), 'field')}")
    if candidate.verdict.refusal:
        reasons.append("serves an artifact that this node has quarantined")
    if candidate.verdict.obstacle:
        reasons.append("cannot be used in the roots of this node")
    return " and ".join(reasons)


def _show_what_was_not_compared(output: Output, explained: Explanation) -> None:
    for source, reason in islice(explained.passed_over.items(), MAX_PASSED_OVER):
        output.line(f"source {source} was not compared: {reason}")
    if (more := len(explained.passed_over) - MAX_PASSED_OVER) > 0:
        output.line(f"{count_of(more, 'further source')} could not be compared")
    if explained.not_looked_at:
        others = count_of(explained.not_looked_at, "further source id")
        output.line(f"{others} of other models were not compared")


def _root_object(root: RootHere) -> dict[str, str]:
    """Describe a root of this node: its path, what decided it, and whether it exists."""
    if root.path is None:
        state = f"{root.error}; {root.error.hint()}" if root.error else ""
    elif root.is_off:
        state = "off, because its path is not stated"
    else:
        state = "exists" if root.path.exists() else "does not exist yet"
    path = "" if root.path is None else str(root.path)
    return {"name": root.label, "path": path, "decided_by": root.decided_by, "state": state}


def _described_root(root: Mapping[str, str]) -> str:
    if not root["path"]:
        return root["state"]
    return f"{root['path']}  ({root['decided_by']}; {root['state']})"


def _show(output: Output, kind: CacheKind, candidate: Candidate, roots: Sequence[RootHere]) -> None:
    from mx_artifacts.workflows.explain_kind import field_differences, unlike_roots

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
    for difference in field_differences(kind, candidate):
        output.line(f"  {difference.field}")
        output.line(f"    here   {shortened(difference.here) or '(not stated)'}")
        output.line(f"    there  {shortened(difference.there) or '(not stated)'}")
        output.line(f"    {difference.advice}")
    for root, theirs in unlike_roots(kind, candidate, roots):
        output.line(f"  root {root.label} is {theirs} there, {root.path} here")
        output.line(f"    use the same path on both nodes; here, {root.decided_by} decided it")


def _unreadable(candidate: Candidate) -> str:
    """Return why this node cannot read from the source, or ""."""
    from mx_artifacts.workflows.explain_kind import needs_nixl

    if not needs_nixl(candidate):
        return ""
    return (
        "this source can be read by NIXL only, which is not allowed on this node: publish with "
        "mx-artifact or, if you trust everyone in the network, set MX_TRANSPORT=nixl"
    )


def _candidate_object(kind: CacheKind, candidate: Candidate) -> dict[str, Any]:
    from mx_artifacts.workflows.explain_kind import field_differences

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
        "differences": [asdict(each) for each in field_differences(kind, candidate)],
    }


def _compare_factors(output: Output, kind: CacheKind, ours: Path, theirs: Path) -> ExitCode:
    """Compare two files of an engine; both caches have the same key if no factor differs."""
    from mx_artifacts.kinds.registry import all_kinds

    factors = kind.key_factors
    if factors is None:
        those = [each.name for each in all_kinds() if each.key_factors is not None]
        raise ConfigurationError(
            f"no engine writes the factors of the key of a {kind.name} cache",
            hint=f"--key-factors can be used with --kind {' or '.join(those)}",
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
