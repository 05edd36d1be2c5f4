"""What an install did to each root, for humans and programs, and what of it will not be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mx_artifact_cli.outcomes import NotUsedError
from mx_artifact_cli.text import count_of

if TYPE_CHECKING:
    from mx_artifact_cli.output import Output
    from mx_artifacts.install.base import InstallReport, RootReport

REPLACE = "--replace takes the fetched ones"
_ALL_HERE = "all of it was here already"


def headline(report: InstallReport) -> str:
    """Return what became of the artifact, in a few words."""
    unusable = sum(len(root.unusable) for root in report.roots)
    if report.nothing_usable:
        return "nothing of it can be used here"
    if report.unchanged and unusable:
        return f"all of it was here already, but {unusable} of it cannot be used"
    return _ALL_HERE if report.unchanged else "installed"


def show_roots(output: Output, report: InstallReport) -> None:
    """Tell what became of the entries of each root, in lines."""
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
        "as fetched": len(root.same),
        "fit for use": len(root.kept) - len(root.same) - len(root.unusable) - len(doubted),
        "not verified": len(doubted),
        "not usable": len(root.unusable),
    }
    listed = ", ".join(f"{count} {what}" for what, count in parts.items() if count)
    return f" ({listed})" if listed else ""


def warn_of_unusable(output: Output, kind: str, report: InstallReport) -> None:
    """Say on stderr which kept entries cannot be used, by an example for each root."""
    for root in report.roots:
        if root.unusable:
            entry, reason = next(iter(root.unusable.items()))
            advice = "" if root.unusable.keys() <= root.dropped.keys() else f"; {REPLACE}"
            output.warn(
                f"{kind}: {len(root.unusable)} of {count_of(len(root.kept), 'entry', 'entries')} "
                f"kept in {root.root} cannot be used, such as {entry}: {reason}{advice}"
            )


def nothing_usable_error(kind: str, report: InstallReport) -> NotUsedError:
    """Return the error for an artifact of which the engine will use nothing."""
    kept = any(root.unusable.keys() - root.dropped.keys() for root in report.roots)
    reasons = (why for root in report.roots for why in {**root.dropped, **root.unusable}.values())
    return NotUsedError(
        f"nothing of the {kind} cache can be used here: {next(reasons)}",
        hint=f"{REPLACE}" if kept else "see the reasons that the command printed",
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
