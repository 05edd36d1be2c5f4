"""The main job of this project, played through once with real processes.

1  node A compiles, its caches empty          4  node B fetches and installs
2  the central server starts                  5  node B runs the same, A's caches out of reach
3  node A publishes what it compiled          6  publisher and server end in order
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mx_artifact_cli.demo.nodes import Node
from mx_artifact_cli.demo.processes import Child, Processes
from mx_artifact_cli.demo.result import JobResult
from mx_artifacts.errors import MxArtifactsError

MODEL = "demo/tiny-model"
DEFAULT_ARCH = "sm90"
"""Architecture that Triton compiles for where there is no GPU to ask: Hopper."""

COMPILE_SECONDS = 900.0
"""Bound of a job that compiles: ten times what two cores need."""
COMMAND_SECONDS = 120.0
"""Bound of starting a server, and of publishing or fetching a few megabytes."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Comparison:
    """One kind: the run that compiled, the run that found the cache, and how it got there."""

    cold: JobResult
    warm: JobResult
    files: int
    total_bytes: int
    transfer_seconds: float
    install_seconds: float

    def check(self) -> None:
        """Check that the warm run took everything from its own cache and compiled nothing.

        Raises:
            MxArtifactsError: it did not; says what the compiler counted.
        """
        cold, warm = self.cold, self.warm
        if cold.hits or not cold.misses:
            raise MxArtifactsError(
                f"{cold.kind}: the cold run counts {cold.hits} hits and {cold.misses} misses, "
                "so it shows nothing"
            )
        uncached = {name: warm.details[name] for name in warm.details if name.endswith("_misses")}
        bad = {"misses": warm.misses, "rebuilt": warm.rebuilt, "outside": warm.outside, **uncached}
        if warm.hits != cold.jobs or any(bad.values()):
            counted = ", ".join(f"{count} {name}" for name, count in bad.items() if count)
            raise MxArtifactsError(
                f"{warm.kind}: {warm.hits} of {cold.jobs} jobs hit in the fetched cache"
                + (f" ({counted})" if counted else ""),
                hint="compare the versions of both runs in the logs; run it again with --keep",
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the row for programs."""
        return {
            "kind": self.warm.kind,
            "jobs": self.warm.jobs,
            "hits": self.warm.hits,
            "misses": self.warm.misses,
            "rebuilt": self.warm.rebuilt,
            "cold_seconds": self.cold.seconds,
            "warm_seconds": self.warm.seconds,
            "cold_misses": self.cold.misses,
            "files": self.files,
            "total_bytes": self.total_bytes,
            "transfer_seconds": self.transfer_seconds,
            "install_seconds": self.install_seconds,
            "versions": self.warm.versions,
            "details": self.warm.details,
        }


class Scenario:
    """Plays the steps for `kinds` below `directory`, telling `say` what goes on."""

    def __init__(
        self,
        directory: Path,
        kinds: Sequence[str],
        processes: Processes,
        environment: Mapping[str, str],
        say: Say,
    ) -> None:
        self._kinds = kinds
        self._processes = processes
        self._say = say
        # Of different depth, so that no path of one fits the other.
        self._node_a = Node(directory / "node-a", environment)
        self._node_b = Node(directory / "racks" / "2" / "node-b", environment)
        self._arch = DEFAULT_ARCH
        # What a driver would tell; without a GPU it is stated, as what each compiled for.
        self._stated = {"triton": self._arch, "inductor": "none"}

    def play(self) -> list[Comparison]:
        """Play all steps and return one comparison a kind.

        Raises:
            MxArtifactsError: a step failed, or the caches did not hit; says where.
        """
        self._say("1/6  node A compiles, its caches empty")
        cold = {kind: self._run_job(self._node_a, kind, "cold") for kind in self._kinds}
        self._say("2/6  the central server starts")
        server, address = self._serve()
        self._say("3/6  node A publishes")
        publisher, published = self._publish(address)
        self._say("4/6  node B, its caches empty, fetches and installs")
        installed = self._fetch(address)
        self._say("5/6  node B runs the same, node A's caches out of reach")
        self._node_a.hide_caches()
        warm = {kind: self._run_job(self._node_b, kind, "warm") for kind in self._kinds}
        self._say("6/6  publisher and central server end")
        self._processes.stop(publisher)
        self._processes.stop(server)
        return [
            Comparison(
                cold=cold[kind],
                warm=warm[kind],
                files=published[kind]["files"],
                total_bytes=published[kind]["total_bytes"],
                transfer_seconds=installed[kind]["transfer_seconds"],
                install_seconds=installed[kind]["install_seconds"],
            )
            for kind in self._kinds
        ]

    def _run_job(self, node: Node, kind: str, name: str) -> JobResult:
        command = [sys.executable, "-m", f"mx_artifact_cli.demo.{kind}_job"]
        if kind == "triton":
            command.append(self._arch)
        environment = node.job_environment(kind)
        child = self._processes.run(f"{name}-{kind}", command, environment, COMPILE_SECONDS)
        result = JobResult.from_output(child.stdout.read_text(encoding="utf-8", errors="replace"))
        if "gpu_arch" in result.versions:  # Inductor runs first, and found a GPU
            self._arch, self._stated = result.versions["gpu_arch"], {}
        self._say(
            f"       {kind}: {result.hits} hits, {result.misses} misses, {result.seconds:.1f} s"
        )
        return result

    def _serve(self) -> tuple[Child, str]:
        command = [*_cli("serve"), "--host", "127.0.0.1", "--port", "0", "--backend", "memory:"]
        server = self._processes.start("serve", command, self._node_a.environment)
        record = self._processes.ready(server, COMMAND_SECONDS)
        return server, record["address"]

    def _publish(self, address: str) -> tuple[Child, dict[str, dict[str, Any]]]:
        command = [*self._about_caches("publish", address, self._node_a)]
        command += ["--host", "127.0.0.1", "--port", "0"]
        publisher = self._processes.start("publish", command, self._node_a.environment)
        record = self._processes.ready(publisher, COMMAND_SECONDS)
        return publisher, {each["kind"]: each for each in record["published"]}

    def _fetch(self, address: str) -> dict[str, dict[str, Any]]:
        command = self._about_caches("fetch-and-install", address, self._node_b)
        child = self._processes.run("fetch", command, self._node_b.environment, COMMAND_SECONDS)
        record = child.result_record() or {"installed": []}
        return {each["kind"]: each for each in record["installed"]}

    def _about_caches(self, verb: str, address: str, node: Node) -> list[str]:
        command = [*_cli(verb), "--server", address, "--model", MODEL]
        for kind in self._kinds:
            command += ["--kind", kind, "--root", f"{kind}={node.root(kind)}"]
        for kind in self._kinds:
            if kind in self._stated:
                command += ["--identity", f"{kind}.gpu_arch={self._stated[kind]}"]
        return command


def _cli(verb: str) -> list[str]:
    return [sys.executable, "-m", "mx_artifact_cli", verb, "--format", "jsonl"]
