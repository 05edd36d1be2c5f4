"""What the documentation names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BASES = (
    ROOT,
    ROOT / "mx_artifacts",
    ROOT / "mx_artifacts" / "transfer",
    ROOT / "cli/mx_artifact_cli",
)
_FILE = re.compile(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`")
_LINK = re.compile(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)")
_TARGET = re.compile(r"`make ([a-z-]+)")
FACTS = ROOT / "docs" / "cache-facts.md"  # names files of other projects


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_links_and_targets_exist(page: Path) -> None:
    text = page.read_text()
    named = set(_FILE.findall(text)) if page != FACTS else set()
    missing = {name for name in named if not any((base / name).is_file() for base in BASES)}
    missing |= {link for link in _LINK.findall(text) if not (page.parent / link).is_file()}
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    missing |= {f"make {name}" for name in _TARGET.findall(text) if name not in targets}
    assert missing == set()
