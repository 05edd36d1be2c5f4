"""Caches that real compilers make, none of which needs a GPU: their trees, and what moves them.

The programs are those of tests/support/caches, the environments those of tests/kinds. Triton's and
Inductor's compilers are there wherever `make demo` ran, TVM-FFI's beside the tests; the others are
in the environments that `make test-kinds` sets up.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.moved import Moved
from benchmarks.harness.processes import REPOSITORY, ProcessFailedError, finished
from benchmarks.harness.tree import TreesDifferError, differing_files
from mx_artifacts.bundle.tree import scan_tree
from mx_artifacts.kinds.ninja.module_state import STATE_FILES
from mx_artifacts.kinds.registry import get_kind
from tests.kinds.caches import CACHES, Cache
from tests.kinds.environments import PROJECT, environment_of, missing

MEASURED = {
    "triton": "triton",
    "inductor": "inductor",
    "tvm_ffi": "tvm_ffi",
    "tilelang": "tilelang",
    "flashinfer": "flashinfer/nvcc",
    "cute_dsl": "cute_dsl",
    "deep_gemm": "deep_gemm/deepjit",
    "vllm": "vllm/mega",
}
"""What figures call a real cache, and its name in tests/kinds/caches.py."""

_PROGRAMS = REPOSITORY / "tests" / "support" / "caches"
_COMPILERS = {"triton": "triton", "inductor": "torch", "tvm_ffi": "tvm_ffi"}
"""Modules that must be installed beside us for what is made there."""
_JOBS = {"inductor": ("--some",)}
"""What its program is told where all of it takes too long: Inductor's six models took three minutes
on two busy cores, half of them half of that."""


class NoCompilerError(Exception):
    """The compiler is not installed here."""


@dataclass(frozen=True)
class RealTree:
    """A cache as a compiler made it, less what its kind never ships (locks and the like)."""

    root: Path
    files: int
    file_bytes: int


class RealCache:
    """A cache that its compiler makes at `place`, with homes of its processes below `homes`."""

    def __init__(self, name: str, place: Path, homes: Path) -> None:
        """`name`: a key of `MEASURED`.

        Raises:
            NoCompilerError: what makes it is not installed.
        """
        (self._cache,) = (each for each in CACHES if each.name == MEASURED[name])
        if reason := _lacking(name, self._cache):
            raise NoCompilerError(reason)
        self.name = name
        self._place, self._homes = place, homes

    def moved(self) -> Moved:
        """Return what its nodes must know."""
        environment = environment_of(self._cache)
        variables = {**environment.variables, **self._cache.variables(self._place)}
        stated = self._cache.stated
        return Moved(self._cache.kind, stated, str(environment.python), variables)

    def make(self) -> RealTree:
        """Let the compiler fill it (Triton and Inductor: half a minute to a minute and a half).

        Raises:
            ProcessFailedError: it could not.
        """
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._run(self._place)
        root = self._cache.root(self._place)
        shipped = self._shipped(root)
        for path in sorted(root.rglob("*"), reverse=True):
            if str(path.relative_to(root)) not in shipped:
                path.rmdir() if path.is_dir() else path.unlink()
        files = [path for path in root.rglob("*") if path.is_file()]
        return RealTree(root, len(files), sum(path.stat().st_size for path in files))

    def check_installed(self, tree: RealTree, copy: Path) -> None:
        """Compare what we installed at `copy` with the cache, as far as the kind ships it.

        A file may differ where it named the cache's place, if it does so no more, or has what
        ninja knows of its directory. Whether it is right there, `check_use` tells.

        Raises:
            TreesDifferError: says what is the first difference.
        """
        there, here = self._shipped(tree.root), self._shipped(copy)
        if odd := sorted(there ^ here):
            raise TreesDifferError(f"{copy}: {len(odd)} paths too few or too many: {odd[0]!r}")
        place = str(tree.root).encode()
        for path in differing_files(tree.root, copy, sorted(there)):
            was, now = (tree.root / path).read_bytes(), (copy / path).read_bytes()
            if Path(path).name not in STATE_FILES and (place not in was or place in now):
                raise TreesDifferError(f"{copy / path} has other bytes than {tree.root / path}")

    def root_at(self, place: Path) -> Path:
        """Return the kind's root of a cache at `place`."""
        return self._cache.root(place)

    def check_use(self, tree: RealTree, place: Path) -> None:
        """Let the compiler run on what was installed at `place`, without the cache it is from.

        Raises:
            TreesDifferError: it compiled anything.
            ProcessFailedError: it failed.
        """
        hidden = tree.root.with_name(f"{tree.root.name}-hidden")
        tree.root.rename(hidden)
        try:
            found = self._run(place)
        finally:
            hidden.rename(tree.root)
        if found["hits"] < found["jobs"]:
            raise TreesDifferError(f"{found['hits']} of {found['jobs']} jobs hit at {place}")

    def _shipped(self, root: Path) -> set[str]:
        return {each.path for each in scan_tree(root, get_kind(self._cache.kind).pack).members}

    def _run(self, place: Path) -> Any:
        """Run the cache's program; return what it says of itself."""
        environment = environment_of(self._cache)
        command = [str(environment.python), str(_PROGRAMS / self._cache.program)]
        command += _JOBS.get(self.name, ())
        with tempfile.TemporaryDirectory(dir=self._homes) as home:
            homes = {"HOME": home, "TMPDIR": home}
            variables = {**environment.variables, **homes, **self._cache.variables(place)}
            _, printed = finished(command, variables)
        result = json.loads(printed.splitlines()[-1])
        if result["errors"]:
            raise ProcessFailedError(f"{self._cache.program}: {result['errors'][0]}")
        return result


def _lacking(name: str, cache: Cache) -> str:
    """Say what is missing here to make a cache, or ""."""
    reason = missing(cache)
    if cache.environment != PROJECT:
        return reason and f"{reason} (make test-kinds sets it up)"
    module = _COMPILERS[name]
    return reason if importlib.util.find_spec(module) else f"{module} is not installed"
