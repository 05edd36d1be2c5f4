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
"""Maximum number of names shown for each reason why files were skipped."""
MAX_REASONS = 10
"""Maximum number of reasons shown to humans."""


def identity_object(identity: SourceIdentity) -> dict[str, Any]:
    """Return the non-empty fields of an identity. Enums are names, or "type 10" if unknown."""
    values = identity.as_dict()
    values["mx_source_type"] = source_type_name(identity.mx_source_type)
    values["backend_framework"] = framework_name(identity.backend_framework)
    # The wire protocol defines no order.
    values["extra_parameters"] = dict(sorted(values["extra_parameters"].items()))
    return {name: value for name, value in values.items() if value}


def identity_facts(
    identity: SourceIdentity, origins: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the fields and extra parameters of an identity, each with its origin."""
    described = identity_object(identity)
    described.update(described.pop("extra_parameters", {}))
    return {
        name: f"{shortened(str(value))}  ({origins[name]})"
        if origins and name in origins
        else shortened(str(value))
        for name, value in described.items()
    }


def shortened(value: str) -> str:
    """Shorten a long value (triton_key), so that two shortened values can still be compared."""
    if len(value) <= MAX_VALUE_LENGTH:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()
    return f"{value[:24]}… ({len(value)} characters, SHA-256 {digest[:16]})"


def skipped_groups(skipped: Iterable[SkippedPath]) -> dict[str, dict[str, Any]]:
    """Group skipped paths by reason (without the name in it): the count and the first names."""
    names: dict[str, list[str]] = {}
    for item in skipped:
        names.setdefault(_without_name(item), []).append(item.path)
    return {
        reason: {"count": len(paths), "examples": list(islice(paths, EXAMPLES))}
        for reason, paths in names.items()
    }


def _without_name(item: SkippedPath) -> str:
    """Return the reason without the path of the entry or file with which it may begin."""
    rest = item.reason.removeprefix(item.path)
    if rest == item.reason or rest[:1] not in (" ", "/"):
        return item.reason
    file, _, what = rest.partition(" ")
    return f"{'one of its files' if file else 'it'} {what}"


def skipped_lines(groups: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return one line a reason: "skipped 12: lock file (a.lock, b.lock, c.lock, …)".

    The most frequent reasons come first. If there are very many, the last line counts the others.
    """
    lines = []
    by_count = sorted(groups.items(), key=lambda item: -item[1]["count"])
    for reason, group in by_count[:MAX_REASONS]:
        more = ", …" if group["count"] > len(group["examples"]) else ""
        lines.append(f"skipped {group['count']}: {reason} ({', '.join(group['examples'])}{more})")
    if others := by_count[MAX_REASONS:]:
        count = sum(group["count"] for _, group in others)
        lines.append(f"skipped {count}: {len(others)} other reasons (--format json shows all)")
    return lines
