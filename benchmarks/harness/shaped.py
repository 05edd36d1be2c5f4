"""The groups of figures that are measured on shaped links, each node on a link of its own."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Mapping, Sequence

from benchmarks.harness.cluster import fresh_root
from benchmarks.harness.processes import Node, ProcessFailedError
from benchmarks.harness.real_caches import RealCache
from benchmarks.harness.rounds import Method
from benchmarks.harness.setting import Setting, fetch, method
from benchmarks.harness.tree import GeneratedTree, Tree, check_equal, make_tree

TARGETS = 8
SHAPED_MIB = 128
"""7.2 s over a link of 150 Mbit/s. Receiving it took 1.2 s of processor time at both ends together
(two cores, AMD EPYC), so eight targets that seed have two thirds of two cores to do."""
RESUMED_MIB = 64
SHAPED_FILES = 64
KILLED_AFTER = 0.5
"""Of the time that a whole fetch takes."""
_UNSEEDED_ROUND = 1
"""The only one, after the one that warms up: it takes eight times as long, and always the same."""


def _generate(setting: Setting, mib: float) -> GeneratedTree:
    mib = min(mib, setting.mib)
    return make_tree(setting.ram / "source", mib=mib, files=min(SHAPED_FILES, setting.files))


def _publish(setting: Setting, mib: float) -> GeneratedTree:
    tree = _generate(setting, mib)
    setting.cluster.publish(tree)
    return tree


def _check_shaped(setting: Setting, tree: Tree, seconds: float) -> None:
    """Refuse a figure of bytes that cannot all have come over the link.

    Raises:
        ProcessFailedError
    """
    assert setting.cluster.network is not None
    least = setting.cluster.network.least_seconds(tree.file_bytes)
    if seconds < least:
        raise ProcessFailedError(f"fetched in {seconds:.3f} s what the link carries in {least:.3f}")


def seeding(setting: Setting) -> list[Method]:
    """The last of eight targets that start at once, with and without seeding, and one alone."""
    tree = _publish(setting, SHAPED_MIB)
    targets = [setting.cluster.new_target(number) for number in range(TARGETS)]
    rounds = itertools.count()

    def unseeded() -> dict[str, float]:
        if next(rounds) != _UNSEEDED_ROUND:
            return {}
        return {"unseeded_at_once": _last_of(setting, tree, targets)}

    def seeded() -> float:
        for target in targets:
            target.ask("renew", seed=True)
        seconds = _last_of(setting, tree, targets)
        for target in targets:
            target.ask("renew", seed=False)
        return seconds

    return [
        method("one_alone", lambda: _last_of(setting, tree, targets[:1])),
        Method("unseeded_at_once", unseeded),
        method("seeding_at_once", seeded),
    ]


def _last_of(setting: Setting, tree: Tree, targets: Sequence[Node]) -> float:
    """Let all fetch at once; return the seconds until the last has installed."""
    with contextlib.ExitStack() as resources:
        roots = [resources.enter_context(fresh_root(setting.ram)) for _ in targets]
        started = time.perf_counter()
        for target, root in zip(targets, roots, strict=True):
            target.send("fetch", model="benchmark", root=str(root), replace=False)
        for target in targets:
            target.answer()
        seconds = time.perf_counter() - started
        _check_shaped(setting, tree, seconds)
        for root in roots:
            check_equal(tree.root, root, relocated=True)
    return seconds


def resume(setting: Setting) -> list[Method]:
    """Fetch all, and fetch again what a target was killed over when it had half of it."""
    tree = _publish(setting, RESUMED_MIB)
    cluster = setting.cluster

    def run() -> dict[str, float]:
        with fresh_root(setting.ram) as root:
            whole = fetch(cluster.new_target(), tree, root)
        _check_shaped(setting, tree, whole["seconds"])
        home = cluster.new_home()
        with fresh_root(setting.ram) as root:
            killed = cluster.new_target(home=home)
            killed.send("fetch", model="benchmark", root=str(root), replace=False)
            time.sleep(KILLED_AFTER * whole["seconds"])
            killed.kill()
            resumed = fetch(cluster.new_target(home=home), tree, root)
        return {
            "fetch_shaped": whole["seconds"],
            "fetch_resumed": resumed["seconds"],
            "bytes_shaped": whole["bytes"],
            "bytes_resumed": resumed["bytes"],
        }

    return [Method("resume", run)]


def compression(setting: Setting) -> list[Method]:
    """Fetch a real cache, and one of random bytes, with compression at auto and without."""
    triton = RealCache("triton", setting.ram / "real", setting.ram)
    trees: dict[str, Tree] = {"": triton.make(), "_random": _generate(setting, RESUMED_MIB)}
    return [Method("compression", lambda: _compressed(setting, trees))]


def _compressed(setting: Setting, trees: Mapping[str, Tree]) -> dict[str, float]:
    target = setting.cluster.target
    figures: dict[str, float] = {}
    for suffix, tree in trees.items():
        setting.cluster.publish(tree)
        for mode, name in (("none", "fetch_plain"), ("auto", "fetch_auto")):
            target.ask("renew", seed=False, compression=mode)
            with fresh_root(setting.ram) as root:
                figures[name + suffix] = fetch(target, tree, root)["seconds"]
            if mode == "none":
                _check_shaped(setting, tree, figures[name + suffix])
    return figures
