"""Runs the steps of the demo with real processes.

1  node A compiles; its caches are empty      4  node B fetches and installs
2  the central server starts                  5  node B runs the same jobs; A's caches are hidden
3  node A publishes what it compiled          6  publisher and server end
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
"""Architecture for which Triton compiles if there is no GPU: Hopper."""

COMPILE_SECONDS = 900.0
"""Maximum duration of a job that compiles [s]: ten times what two cores need."""
COMMAND_SECONDS = 120.0
"""Maximum duration to start a server, or to publish or fetch a few megabytes [s]."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Comparison:
    """The two runs of one kind, without and with the cache, and how the cache was moved."""

    cold: JobResult
    warm: JobResult
    files: int
    total_bytes: int
    transfer_seconds: float
    install_seconds: float

    def check(self) -> None:
        """Check that the warm run took everything from its own cache and compiled nothing.

        Raises:
            MxArtifactsError: it compiled something; the message has the counts.
        """
        cold, warm = self.cold, self.warm
        if cold.hits or not cold.misses:
            raise MxArtifactsError(
                f"{cold.kind}: the first run had {cold.hits} hits and {cold.misses} misses, but "
                "its "
                "cache should have been empty, so the demo shows nothing",
                hint="run it again with --keep and compare the logs",
            )
        uncached = {name: warm.details[name] for name in warm.details if name.endswith("_misses")}
        bad = {"misses": warm.misses, "rebuilt": warm.rebuilt, "outside": warm.outside, **uncached}
        if warm.hits != cold.jobs or any(bad.values()):
            counted = ", ".join(f"{count} {name}" for name, count in bad.items() if count)
            raise MxArtifactsError(
                f"{warm.kind}: only {warm.hits} of {cold.jobs} jobs were hits in the fetched cache"
                + (f" ({counted})" if counted else ""),
                hint="run it again with --keep and compare the versions of both runs in the logs",
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
    """Runs the steps for `kinds` below `directory`, and calls `say` at each step."""

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
        # At different depths, so that no path of one node is right on the other.
        self._node_a = Node(directory / "node-a", environment)
        self._node_b = Node(directory / "racks" / "2" / "node-b", environment)
        self._arch = DEFAULT_ARCH
        # Without a GPU, no driver tells the architecture. So state the one that each compiler used.
        self._stated = {"triton": self._arch, "inductor": "none"}

    def play(self) -> list[Comparison]:
        """Run all steps and return one comparison per kind.

        Raises:
            MxArtifactsError: a step failed; the message names it.
        """
        self._say("1/6  node A compiles; its caches are empty")
        cold = {kind: self._run_job(self._node_a, kind, "cold") for kind in self._kinds}
        self._say("2/6  the central server starts")
        server, address = self._serve()
        self._say("3/6  node A publishes")
        publisher, published = self._publish(address)
        self._say("4/6  node B, whose caches are empty, fetches and installs")
        installed = self._fetch(address)
        self._say("5/6  node B runs the same jobs; node A's caches are hidden")
        self._node_a.hide_caches()
        warm = {kind: self._run_job(self._node_b, kind, "warm") for kind in self._kinds}
        self._say("6/6  the publisher and the central server end")
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
        if "gpu_arch" in result.versions:  # Inductor runs first; it found a GPU
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
