"""Library values as plain data for the JSON formats, and as facts for humans."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from mx_artifacts.core.identity import SourceIdentity, framework_name, source_type_name

if TYPE_CHECKING:
    from mx_artifacts.bundle.tree import SkippedPath

MAX_VALUE_LENGTH = 80
EXAMPLES = 3
"""Names shown for each reason why files were skipped."""
MAX_REASONS = 10
"""Lines of reasons shown to humans."""


def identity_object(identity: SourceIdentity) -> dict[str, Any]:
    """Return the stated fields of an identity, enums by name ("type 10" without one)."""
    values = identity.as_dict()
    values["mx_source_type"] = source_type_name(identity.mx_source_type)
    values["backend_framework"] = framework_name(identity.backend_framework)
    # The wire has no order.
    values["extra_parameters"] = dict(sorted(values["extra_parameters"].items()))
    return {name: value for name, value in values.items() if value}


def identity_facts(
    identity: SourceIdentity, origins: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return an identity's fields and extra parameters, each with where it comes from."""
    described = identity_object(identity)
    described.update(described.pop("extra_parameters", {}))
    return {
        name: f"{shortened(str(value))}  ({origins[name]})"
        if origins and name in origins
        else shortened(str(value))
        for name, value in described.items()
    }


def shortened(value: str) -> str:
    """Shorten a value that fills a screen (triton_key) so that two can still be compared."""
    if len(value) <= MAX_VALUE_LENGTH:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()
    return f"{value[:24]}… ({len(value)} characters, SHA-256 {digest[:16]})"


def skipped_groups(skipped: Iterable[SkippedPath]) -> dict[str, dict[str, Any]]:
    """Group what was left out by its reason, whatever it names: how many, the first few names."""
    names: dict[str, list[str]] = {}
    for item in skipped:
        names.setdefault(_without_name(item), []).append(item.path)
    return {
        reason: {"count": len(paths), "examples": list(islice(paths, EXAMPLES))}
        for reason, paths in names.items()
    }


def _without_name(item: SkippedPath) -> str:
    """Return the reason without the entry's or its file's path, with which it may begin."""
    rest = item.reason.removeprefix(item.path)
    if rest == item.reason or rest[:1] not in (" ", "/"):
        return item.reason
    file, _, what = rest.partition(" ")
    return f"{'a file of it' if file else 'it'} {what}"


def skipped_lines(groups: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return one line a reason: "skipped 12: lock file (a.lock, b.lock, c.lock, …)".

    The reasons that hold for most come first; of very many, the last are counted only.
    """
    lines = []
    by_count = sorted(groups.items(), key=lambda item: -item[1]["count"])
    for reason, group in by_count[:MAX_REASONS]:
        more = ", …" if group["count"] > len(group["examples"]) else ""
        lines.append(f"skipped {group['count']}: {reason} ({', '.join(group['examples'])}{more})")
    if others := by_count[MAX_REASONS:]:
        count = sum(group["count"] for _, group in others)
        lines.append(f"skipped {count}: for {len(others)} other reasons (all with --format json)")
    return lines
