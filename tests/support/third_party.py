"""A package of a third party that is installed for one test: its modules and its entry points."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from mx_artifacts.kinds import registry


@contextmanager
def installed_package(
    site: Path, modules: Mapping[str, str], entry_points: Mapping[str, Mapping[str, str]]
) -> Iterator[None]:
    """Have a package: modules (name to source), entry points (group to name to object)."""
    information = site / "theirs-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    lines = []
    for group, points in entry_points.items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {value}" for name, value in points.items()]
    (information / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for name, source in modules.items():
        (site / f"{name}.py").write_text(source)
    registry._third_party_kinds.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        yield
    registry._third_party_kinds.cache_clear()
    for name in modules:
        sys.modules.pop(name, None)
