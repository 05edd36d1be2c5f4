"""Reports what an install did in each root, and which entries the engine will not use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mx_artifact_cli.outcomes import NotUsedError
from mx_artifact_cli.text import count_of

if TYPE_CHECKING:
    from mx_artifact_cli.output import Output
    from mx_artifacts.install.base import InstallReport, RootReport

REPLACE = "to replace them by the fetched entries, use --replace"
_ALL_HERE = "everything was installed already"


def headline(report: InstallReport) -> str:
    """Return the outcome of the install in a few words."""
    unusable = sum(len(root.unusable) for root in report.roots)
    if report.nothing_usable:
        return "nothing of it can be used on this node"
    if report.unchanged and unusable:
        return f"{_ALL_HERE}, but {count_of(unusable, 'entry', 'entries')} cannot be used"
    return _ALL_HERE if report.unchanged else "installed"


def show_roots(output: Output, report: InstallReport) -> None:
    """Print what happened to the entries of each root."""
    for root in report.roots:
        output.line(
            f"  {root.root}: {count_of(len(root.installed), 'entry', 'entries')} installed, "
            f"{len(root.kept)} kept{_kept_parts(root)}, {len(root.dropped)} dropped"
        )
        for entry, reason in root.repaired.items():
            output.line(f"    replaced {entry}, which could not be used: {reason}")
        for entry, reason in root.unusable.items():
            output.line(f"    kept {entry}, but it cannot be used: {reason}")
        for entry, reason in root.dropped.items():
            output.line(f"    dropped {entry}: {reason}")
        for entry, reason in root.unverified.items():
            output.line(f"    {entry}: {reason}")


def _kept_parts(root: RootReport) -> str:
    doubted = set(root.kept) & root.unverified.keys() - {*root.same, *root.unusable}
    parts = {
        "identical to the fetched": len(root.same),
        "usable": len(root.kept) - len(root.same) - len(root.unusable) - len(doubted),
        "not verified": len(doubted),
        "not usable": len(root.unusable),
    }
    listed = ", ".join(f"{count} {what}" for what, count in parts.items() if count)
    return f" ({listed})" if listed else ""


def warn_of_unusable(output: Output, kind: str, report: InstallReport) -> None:
    """Print a warning if kept entries cannot be used, with an example for each root."""
    for root in report.roots:
        if root.unusable:
            entry, reason = next(iter(root.unusable.items()))
            advice = "" if root.unusable.keys() <= root.dropped.keys() else f"; {REPLACE}"
            output.warn(
                f"{kind}: {len(root.unusable)} of "
                f"{count_of(len(root.kept), 'kept entry', 'kept entries')} "
                f"in {root.root} cannot be used, for example {entry}: {reason}{advice}"
            )


def nothing_usable_error(kind: str, report: InstallReport) -> NotUsedError:
    """Return the error for an artifact if the engine will use nothing of it."""
    kept = any(root.unusable.keys() - root.dropped.keys() for root in report.roots)
    reasons = (why for root in report.roots for why in {**root.dropped, **root.unusable}.values())
    return NotUsedError(
        f"nothing of the {kind} cache can be used on this node: {next(reasons)}",
        hint=REPLACE if kept else "see the reasons in the output of the command",
    )


def root_objects(report: InstallReport) -> list[dict[str, Any]]:
    """Describe the roots for the JSON formats."""
    return [
        {
            "path": root.root,
            "installed": list(root.installed),
            "kept": list(root.kept),
            "same": list(root.same),
            "unusable": dict(root.unusable),
            "repaired": dict(root.repaired),
            "dropped": dict(root.dropped),
            "unverified": dict(root.unverified),
            "files": root.files,
            "bytes": root.bytes,
        }
        for root in report.roots
    ]
