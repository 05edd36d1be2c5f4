"""The nodes that a group of figures is measured with: a central server, sources, targets."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.harness.moved import GENERATED, Moved
from benchmarks.harness.network import UCX_OVER_TCP, Network, Place
from benchmarks.harness.processes import REPOSITORY, Node, clean_environment, node, timed
from benchmarks.harness.tree import Tree, TreesDifferError, check_equal

RESIDENT_BYTES = 4 << 30
"""What a source may keep in memory: the most that the product takes by default."""
LOOPBACK = "127.0.0.1"
_PEER_SCRIPTS = REPOSITORY / "tests" / "interop"
_PEER_PROGRAM = REPOSITORY / "benchmarks" / "harness" / "reference_node.py"


@contextlib.contextmanager
def fresh_root(place: Path) -> Iterator[Path]:
    """Give the path of a root that does not exist yet; it goes with all that was put beside it."""
    directory = Path(tempfile.mkdtemp(prefix="target-", dir=place))
    try:
        yield directory / "root"
    finally:
        shutil.rmtree(directory)


class Cluster:
    """Starts nodes when they are first asked for. They end with `resources`."""

    def __init__(
        self,
        place: Path,
        resources: contextlib.ExitStack,
        peer: Path | None,
        network: Network | None = None,
        moved: Moved = GENERATED,
        stated: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`place`: for their small files. `peer`: the Python of the reference's environment.

        In a `network`, the central server is at its router, the source is its first node, and
        targets are those after it; else all share this machine's loopback and memory. `stated` are
        variables that all nodes have.
        """
        self._stated = stated
        self._place = place
        self._resources = resources
        self.peer_python = peer
        self.network = network
        self._moved = moved
        self.server: str = self._start("central", network.router if network else None).ready[
            "address"
        ]

    def new_home(self) -> Path:
        """Make the home directory of a node, which goes with `resources`."""
        home = Path(tempfile.mkdtemp(prefix="node-", dir=self._place))
        self._resources.callback(shutil.rmtree, home, ignore_errors=True)
        return home

    def _start(
        self, role: str, at: Place | None, *arguments: str, home: Path | None = None
    ) -> Node:
        home = home or self.new_home()
        env = clean_environment(home, self._moved.variables)
        program = [self._moved.python, "-m", "benchmarks.harness.node", role]
        command = [*program, LOOPBACK, *arguments]
        if at is not None:
            command = at.enter([*program, at.address, *arguments])
            env |= UCX_OVER_TCP
        env |= self._stated
        return self._resources.enter_context(node(command, env=env, logs=home))

    def new_target(self, number: int = 0, home: Path | None = None) -> Node:
        """Start another target; in a network, on the link with that `number`, from 0."""
        at = self.network.nodes[1 + number] if self.network else None
        return self._start("target", at, self.server, self._moved.as_argument(), home=home)

    @cached_property
    def source(self) -> Node:
        """The source."""
        at = self.network.nodes[0] if self.network else None
        return self._start("source", at, self.server, self._moved.as_argument())

    @cached_property
    def target(self) -> Node:
        """The target of those who need only one."""
        return self.new_target()

    def publish(self, tree: Tree, *, resident_bytes: int = RESIDENT_BYTES) -> float:
        """Publish `tree` instead of what was published before; return the seconds."""
        answer = self.source.ask(
            "publish",
            model="benchmark",
            root=str(tree.root),
            bundle_root=str(tree.root.parent / "bundles"),
            resident_bytes=resident_bytes,
        )
        if answer["files"] != tree.files:
            raise TreesDifferError(f"{answer['files']} of {tree.files} files were published")
        seconds: float = answer["seconds"]
        return seconds

    def cli_words(self, root: Path) -> list[str]:
        """Return the command line that fetches and installs in a process of its own."""
        kind, framework = self._moved.kind, self._moved.stated["backend_framework"]
        stated = {k: v for k, v in self._moved.stated.items() if k != "backend_framework"}
        words = [word for pair in stated.items() for word in ("--identity", "=".join(pair))]
        return [
            *(sys.executable, "-m", "mx_artifact_cli", "fetch-and-install", "--kind", kind),
            *("--model", "benchmark", "--framework", framework, *words),
            *("--server", self.server, "--root", f"{kind}={root}", "--format", "json"),
        ]

    def run_cli(self, root: Path) -> float:
        """Fetch and install in a process of its own; return the seconds of that process."""
        env = {**clean_environment(self._cli_home), **self._stated}
        return timed(self.cli_words(root), env)

    @cached_property
    def _cli_home(self) -> Path:
        return self.new_home()


@dataclass
class Peers:
    """Nodes of the reference package, on the central server of a cluster.

    They are paused while they have nothing to do: an idle agent of theirs takes a whole core, which
    would be counted against whatever else is measured meanwhile.
    """

    cluster: Cluster
    resources: contextlib.ExitStack

    def _command(self, role: str) -> list[str]:
        program = str(_PEER_PROGRAM)
        return [str(self.cluster.peer_python), program, role, self.cluster.server]

    @cached_property
    def _env(self) -> Mapping[str, str]:
        env = clean_environment(self.cluster.new_home())
        kept = {name: value for name, value in env.items() if not name.startswith("PYTHON")}
        return kept | {"PYTHONPATH": str(_PEER_SCRIPTS)}  # ours must not be importable there

    def _start(self, role: str) -> Node:
        logs = Path(self._env["HOME"])
        started = self.resources.enter_context(node(self._command(role), env=self._env, logs=logs))
        started.pause()
        return started

    @contextlib.contextmanager
    def _awake(self, *nodes: Node) -> Iterator[None]:
        for each in nodes:
            each.resume()
        yield
        for each in nodes:
            each.pause()

    @cached_property
    def source(self) -> Node:
        """A source that runs."""
        return self._start("source")

    @cached_property
    def target(self) -> Node:
        """A target that runs."""
        return self._start("target")

    @cached_property
    def _identity(self) -> dict[str, Any]:
        # Another model than ours, or each would find both sources.
        identity: dict[str, Any] = self.cluster.source.ask("identity", model="reference")
        return identity

    def _request(self, root: Path, bundle_root: Path) -> dict[str, Any]:
        places = {"roots": {"primary": str(root)}, "bundle_root": str(bundle_root)}
        return {**self._identity, **places}

    def publish(self, tree: Tree) -> float:
        """Publish `tree` instead of what was published before; return the seconds."""
        request = self._request(tree.root, tree.root.parent / "reference-bundles")
        with self._awake(self.source):
            seconds: float = self.source.ask("publish", **request)["seconds"]
        return seconds

    def fetch(self, tree: Tree, place: Path) -> float:
        """Fetch and install below `place` with the target that runs, check; return the seconds."""
        with fresh_root(place) as root:
            request = self._request(root, root.parent / "bundles")
            with self._awake(self.source, self.target):
                seconds: float = self.target.ask("fetch", **request)["seconds"]
            check_equal(tree.root, root, relocated=False)
        return seconds

    def fetch_once(self, tree: Tree, place: Path) -> float:
        """As `fetch`, in a process of its own; the seconds are of that process."""
        with fresh_root(place) as root:
            request = json.dumps(self._request(root, root.parent / "bundles"))
            with self._awake(self.source):
                seconds = timed([*self._command("once"), request], self._env)
            check_equal(tree.root, root, relocated=False)
        return seconds
