"""Reports what a fetch did, or would do, for humans and programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mx_artifact_cli.describe import identity_facts, identity_object
from mx_artifact_cli.fetch.install_report import (
    headline,
    root_objects,
    show_roots,
    warn_of_unusable,
)
from mx_artifact_cli.output import Output, error_object
from mx_artifact_cli.text import count_of, format_bytes, format_seconds

if TYPE_CHECKING:
    from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint
    from mx_artifacts.artifacts.target.fetch_values import FetchPlan
    from mx_artifacts.workflows.fetch_kinds import FetchedKind, PlannedKind


def _source_object(source: ArtifactSourceEndpoint) -> dict[str, Any]:
    return {
        "mx_source_id": source.mx_source_id,
        "worker_id": source.worker_id,
        "worker_rank": source.worker_rank,
        "endpoint": source.worker_grpc_endpoint,
        "artifact_id": source.artifact_id,
    }


def show_plan(output: Output, planned: PlannedKind, *, replace: bool) -> dict[str, Any]:
    """Show what a fetch would do; return it for programs."""
    selected, probed, plan = planned.selected, planned.probed, planned.plan
    first = plan.sources[0]
    roots = selected.roots()
    outcome = headline(plan.already) if plan.already else "would be fetched and installed"
    output.line(f"{selected.name}: {outcome}")
    output.facts(identity_facts(probed.identity, probed.origins), indent="  identity  ")
    facts = {
        "bytes": format_bytes(first.total_size),
        "artifact": first.artifact_id,
        "from": f"{first.worker_grpc_endpoint} (worker {first.worker_id})",
        "or from": ", ".join(s.worker_grpc_endpoint for s in plan.sources[1:]),
        "into": ", ".join(map(str, roots.values())),
    }
    output.facts({name: value for name, value in facts.items() if value}, indent="  ")
    if plan.already:
        show_roots(output, plan.already)
        warn_of_unusable(output, selected.name, plan.already)
    else:
        _show_existing(output, planned.existing_entries, replace)
    described = {
        "kind": selected.name,
        "sources": [_source_object(source) for source in plan.sources],
        "total_bytes": first.total_size,
        "already_installed": plan.already is not None,
        "unusable": _unusable(plan),
        "existing": {str(root): count for root, count in planned.existing_entries.items()},
        "roots": {selected.kind.root_label(name): path for name, path in roots.items()},
        "identity": identity_object(probed.identity),
    }
    output.record("planned", described)
    return described


def _show_existing(output: Output, existing: Mapping[Path, int], replace: bool) -> None:
    """Print what is known about kept and replaced entries without the index of the artifact."""
    outcome = "replaced" if replace else "kept, or replaced with --replace"
    for root, count in existing.items():
        output.line(
            f"  {root} has {count_of(count, 'entry', 'entries')}; those that are also in the "
            "artifact "
            f"would be {outcome}. Which entries these are, and whether they are usable, is known "
            "only after the transfer."
            if count
            else f"  {root} has no entries that could be kept or replaced"
        )


def _unusable(plan: FetchPlan) -> dict[str, dict[str, str]]:
    roots = plan.already.roots if plan.already else ()
    return {str(root.root): dict(root.unusable) for root in roots if root.unusable}


def show_fetched(output: Output, installed: FetchedKind) -> dict[str, Any]:
    """Show what was fetched and installed; return it for programs."""
    fetched, report = installed.result, installed.result.report
    output.line(f"{fetched.kind}: {headline(report)}")
    facts = {
        "from": f"{fetched.source.worker_grpc_endpoint} (worker {fetched.source.worker_id})",
        "artifact": fetched.source.artifact_id,
    }
    if fetched.total_bytes:
        rate = fetched.total_bytes / max(fetched.transfer_seconds, 1e-9)
        facts["transfer"] = (
            f"{format_bytes(fetched.total_bytes)} in "
            f"{format_seconds(fetched.transfer_seconds)} ({format_bytes(rate)}/s)"
            f" by {' and '.join(sorted(set(fetched.transports.values())))}"
        )
        facts["install"] = format_seconds(fetched.install_seconds)
    if len(fetched.delivered) > 1:
        shares = (f"{at} {format_bytes(size)}" for at, size in fetched.delivered.items())
        facts["shares"] = ", ".join(shares)
    output.facts(facts, indent="  ")
    for endpoint, error in fetched.left_behind.items():
        output.warn(f"source {endpoint} failed, and other sources delivered its bytes: {error}")
    show_roots(output, report)
    output.line(f"  receipt   {report.receipt_path}")
    warn_of_unusable(output, fetched.kind, report)
    described = {
        "kind": fetched.kind,
        "source": _source_object(fetched.source),
        "total_bytes": fetched.total_bytes,
        "transfer_seconds": round(fetched.transfer_seconds, 6),
        "install_seconds": round(fetched.install_seconds, 6),
        "delivered": dict(fetched.delivered),
        "transports": dict(fetched.transports),
        "left_behind": {at: error_object(error) for at, error in fetched.left_behind.items()},
        "receipt": report.receipt_path,
        "roots": root_objects(report),
        "identity": identity_object(installed.probed.identity),
    }
    output.record("installed", described)
    return described
