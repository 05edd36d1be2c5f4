"""Files that a program writes and git keeps: write them, or check that they are up to date."""

from __future__ import annotations

import argparse
import filecmp
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


def differences(expected: Path, actual: Path, owned: str) -> list[str]:
    """List files below `expected` that `actual` lacks or has otherwise, and left-over ones.

    `owned` is the glob of the files below `actual` that only the generator may put there; empty
    where others write there too.
    """
    names = {*_files(expected, "*"), *(_files(actual, owned) if owned else ())}
    return [name for name in sorted(names) if not _equal(expected / name, actual / name)]


def _files(folder: Path, pattern: str) -> Iterator[str]:
    for path in folder.rglob(pattern):
        if path.is_file() and "__pycache__" not in path.parts:
            yield str(path.relative_to(folder))


def _equal(one: Path, other: Path) -> bool:
    return one.is_file() and other.is_file() and filecmp.cmp(one, other, shallow=False)


def main(
    generate: Callable[[Path], None], target: Path, *, owned: str, remake: str, usage: str
) -> int:
    """Let `generate` write below `target`; with --check only compare. Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=usage, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 on a difference")
    if not parser.parse_args().check:
        generate(target)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        stale = differences(Path(folder), target, owned)
    for name in stale:
        print(f"out of date: {target / name}; run '{remake}'", file=sys.stderr)
    return 1 if stale else 0
