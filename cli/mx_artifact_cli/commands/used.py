"""`mx-artifact used`: says whether the engine used what was installed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from mx_artifact_cli.option_fields import takes
from mx_artifact_cli.option_groups import ReceiptOptions
from mx_artifact_cli.options import Verb
from mx_artifact_cli.outcomes import NotUsedError
from mx_artifact_cli.output import Output
from mx_artifact_cli.receipts import chosen_receipts, roots_of

if TYPE_CHECKING:
    from mx_artifacts.install.usage import UsageReport


@click.command("used", cls=Verb)
@takes(ReceiptOptions)
@click.pass_obj
def command(output: Output, options: ReceiptOptions) -> None:
    """Say whether an engine used an installed cache or compiled again.

    Run it after the engine has started. State one RECEIPT, or use --kind for the newest receipt in
    the roots of a kind. The verdict on each is hit, recompiled, unused or unknown. The exit code
    is 0 if every verdict is hit, else 3.
    """
    from mx_artifacts.install.usage import UsageVerdict, usage_of

    roots = roots_of(options)
    reports = [
        usage_of(of_kind[0].path, roots=roots) for of_kind in chosen_receipts(output, options)
    ]
    described = [_show(output, report) for report in reports]
    output.result({"used": described})
    missed = [report for report in reports if report.verdict is not UsageVerdict.HIT]
    if missed:
        raise NotUsedError(
            "the engine did not use the installed cache, or compiled in addition: "
            + ", ".join(f"{each.kind} ({each.verdict.value}: {each.reason})" for each in missed),
            hint=missed[0].next_step,
        )


def _show(output: Output, report: UsageReport) -> dict[str, Any]:
    output.line(f"{report.kind}: {report.verdict.value}")
    facts = {"artifact": report.artifact_id, "receipt": report.receipt_path}
    if report.verdict.value == "hit":  # otherwise, the error has the reason
        facts["why"] = report.reason
    output.facts(facts, indent="  ")
    for root in report.roots:
        output.line(
            f"  {root.root}: entries: {len(root.ours)} of this artifact, {len(root.read)} read, "
            f"{len(root.gone)} missing, {len(root.rewritten)} compiled again, {len(root.new)} new"
        )
        for name, (ours, theirs) in root.differences.items():
            output.line(f"    {name}: the installed cache has {ours}; the engine uses {theirs}")
    described = {**asdict(report), "verdict": report.verdict.value}
    output.record("used", described)
    return described
