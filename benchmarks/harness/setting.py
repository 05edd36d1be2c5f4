"""What a group of figures is measured with, and what their methods share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.cluster import Cluster, Peers
from benchmarks.harness.processes import Node
from benchmarks.harness.real_caches import RealCache
from benchmarks.harness.rounds import Method
from benchmarks.harness.tree import GeneratedTree, Tree, check_equal, make_tree


@dataclass
class Setting:
    """What a group is measured with. Trees and targets of `ram` are in memory, of `disk` not."""

    mib: float
    files: int
    ram: Path
    disk: Path
    cluster: Cluster
    peers: Peers | None
    cache: RealCache | None = None

    def tree(self, mib: float | None = None) -> GeneratedTree:
        """Return a tree in memory, of `mib` MiB with as many files for each MiB as all have."""
        size_mib = self.mib if mib is None else mib
        files = round(self.files * size_mib / self.mib)
        return make_tree(self.ram / "source", mib=size_mib, files=files)


def fetch(node: Node, tree: Tree, root: Path, *, replace: bool = False) -> dict[str, float]:
    """Let a target fetch and install into `root`, check; return its seconds and bytes."""
    fetched: dict[str, float] = node.ask(
        "fetch", model="benchmark", root=str(root), replace=replace
    )
    check_equal(tree.root, root, relocated=True)
    return fetched


def method(name: str, seconds: Callable[[], float]) -> Method:
    """Return a method that measures one figure."""
    return Method(name, lambda: {name: seconds()})
