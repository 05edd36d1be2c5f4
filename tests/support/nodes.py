"""Nodes of a small cluster, run through the command line: a source, a target, their directories.

Every node gets directories of its own below one place, and one central server serves them all; what
separates tests that share a server is the model's name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mx_artifacts import settings
from tests.support.child import our_environment
from tests.support.processes import Running, Service, last_object, run_cli, running, serving

KIND = "tilelang"
"""Its entries are directories named by a hash, and no fix-up looks into their files."""
IDENTITY = {"cuda_version": "12.8", "gpu_arch": "sm90", "tilelang_version": "1"}
WORDS = (
    *("--kind", KIND, "--framework", "vllm"),
    *(word for pair in IDENTITY.items() for word in ("--identity", "=".join(pair))),
)
FIRST, SECOND = "a" * 64, "b" * 64
"""Names of entries."""


def clean_environment(home: Path) -> dict[str, str]:
    """Return the environment of a node on which nobody has set anything of ours."""
    ours = {name for setting in settings.SETTINGS for name in setting.names}
    env = {name: value for name, value in our_environment().items() if name not in ours}
    # But that nothing waits for a server that will never be there, and ports are free.
    ours_too = {"MX_WORKER_GRPC_PORT": "0", "MX_WORKER_STREAM_PORT": "0"}
    ours_too["MX_PUBLISH_TIMEOUT_SECS"] = "0"
    return env | {"HOME": str(home), **ours_too}


@dataclass(frozen=True)
class Cluster:
    """What a test's nodes share. `model` is this test's own."""

    directory: Path
    env: Mapping[str, str]
    model: str
    bundle_root: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bundle_root", self.directory / "bundles")

    def source_args(self, cache: Path, *args: str) -> tuple[str, ...]:
        places = ("--root", str(cache), "--bundle-root", str(self.directory / "sealed"))
        return ("publish", *WORDS, "--model", self.model, *places, *args)

    def target_args(self, root: Path, *args: str) -> tuple[str, ...]:
        places = ("--root", str(root), "--bundle-root", str(self.bundle_root))
        return ("fetch-and-install", *WORDS, "--model", self.model, *places, *args)

    def source(self, cache: Path, *args: str, **env: str) -> Service:
        """Publish `cache` and serve it."""
        args = self.source_args(cache, *args)
        return serving(*args, env={**self.env, **env}, logs=self.directory)

    def target(self, root: Path, *args: str, **env: str) -> Running:
        """Start to fetch into `root`."""
        args = self.target_args(root, *args)
        return running(*args, env={**self.env, **env}, logs=self.directory)

    def publish(self, cache: Path, *args: str, **env: str) -> tuple[int, Any]:
        """Publish `cache`, which is expected to fail; return exit code and error."""
        return self._run(self.source_args(cache, *args), env)

    def fetch(self, root: Path, *args: str, **env: str) -> tuple[int, Any]:
        """Fetch into `root`; return the exit code, and the result or the error."""
        return self._run(self.target_args(root, *args), env)

    def run(self, *args: str) -> tuple[int, Any]:
        """Run another verb; return the exit code, and the result or the error."""
        return self._run(args, {})

    def _run(self, args: tuple[str, ...], env: Mapping[str, str]) -> tuple[int, Any]:
        done = run_cli(*args, "--format", "json", env={**self.env, **env})
        if done.returncode:
            return done.returncode, last_object(done.stderr)
        return 0, json.loads(done.stdout)

    def sealed(self) -> list[str]:
        """Return what the sources left in their bundle root."""
        root = self.directory / "sealed"
        return sorted(os.listdir(root)) if root.exists() else []

    def staged(self) -> list[str]:
        """Return what is left in the targets' bundle root."""
        return sorted(os.listdir(self.bundle_root)) if self.bundle_root.exists() else []

    def sources(self) -> list[Any]:
        """Return what `sources list` says of this model."""
        done = run_cli("sources", "list", "--model", self.model, "--format", "json", env=self.env)
        assert done.returncode == 0, done.stderr
        listed: list[Any] = json.loads(done.stdout)["sources"]
        return listed


def warm_cache(root: Path, size_bytes: int = 300_000, files: int = 1) -> Path:
    """Make a cache of two entries of random bytes, `size_bytes` together, each in `files` files."""
    for entry in (FIRST, SECOND):
        directory = root / "1.0/sm90/autotuner" / entry
        directory.mkdir(parents=True)
        for number in range(files):
            name = f"tuned{number or ''}.bin"
            (directory / name).write_bytes(os.urandom(size_bytes // 2 // files))
        (directory / "best_config.json").write_text(json.dumps({"entry": entry}))
    return root
