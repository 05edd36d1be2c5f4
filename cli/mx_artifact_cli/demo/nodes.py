"""The two "nodes" of the demo: separate directories with separate environments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ROOT_VARIABLES = {"inductor": "TORCHINDUCTOR_CACHE_DIR", "triton": "TRITON_CACHE_DIR"}
"""The variable in which the compiler of each kind finds its cache root."""

_FOREIGN = ("MX_", "MODEL_EXPRESS_", "TORCHINDUCTOR_", "TORCH_COMPILE", "TRITON_", "VLLM_")


class Node:
    """A directory that looks like a separate machine to compilers.

    `caches` contains its cache roots; `tmp` is its temporary directory.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        """Create the directories of the node. `environment` is that of the demo."""
        self.caches = directory / "caches"
        self.tmp = directory / "tmp"
        self.caches.mkdir(parents=True)
        self.tmp.mkdir()
        # A user's settings would move the caches, or change what is compiled.
        kept = {k: v for k, v in environment.items() if not k.startswith(_FOREIGN)}
        self.environment = {
            **kept,
            "TMPDIR": str(self.tmp),
            "MX_STATE_DIR": str(directory / "state"),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Inductor keeps a precompiled header in TMPDIR, outside its cache: 150 MB, compiled
            # again on every machine. Without it a cache that hits starts no compiler at all.
            "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
        }

    def root(self, kind: str) -> Path:
        """Return the cache root of `kind` on this node."""
        return self.caches / kind

    def job_environment(self, kind: str) -> dict[str, str]:
        """Return the environment of a process that compiles."""
        # Inductor keeps its own Triton kernels below its own root, so only one is set.
        return {**self.environment, ROOT_VARIABLES[kind]: str(self.root(kind))}

    def hide_caches(self) -> None:
        """Rename the cache roots, so that no process finds them."""
        self.caches.rename(self.caches.with_name("caches.hidden"))
