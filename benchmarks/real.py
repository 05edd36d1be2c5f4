"""A cache of a real compiler: Triton's, of a hundred kernels for sm_90 (no GPU is needed)."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from benchmarks.processes import REPOSITORY, timed
from benchmarks.tree import FILES_IN_DIRECTORY, GeneratedTree, TreesDifferError

_PROGRAM = REPOSITORY / "tests/support/caches/gen_triton.py"


class NoCompilerError(Exception):
    """The compiler is not installed here."""


def real_tree(root: Path) -> GeneratedTree:
    """Let Triton compile into `root` (half a minute to a minute), and return what came of it.

    Raises:
        NoCompilerError: Triton is not installed.
        ProcessFailedError, TreesDifferError: it did not compile what it should.
    """
    if importlib.util.find_spec("triton") is None:
        raise NoCompilerError("Triton is not installed: make demo installs it")
    timed([sys.executable, str(_PROGRAM)], {**os.environ, "TRITON_CACHE_DIR": str(root)})
    files = [path for path in root.rglob("*") if path.is_file()]
    directories, rest = divmod(len(files), FILES_IN_DIRECTORY)
    if rest:
        raise TreesDifferError(
            f"Triton wrote {len(files)} files, not {FILES_IN_DIRECTORY} a kernel"
        )
    return GeneratedTree(root, 0, directories, sum(path.stat().st_size for path in files))
