"""The groups of figures of the transfer benchmark: each makes methods to be run in turn."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import shaped
from benchmarks.harness.cluster import fresh_root
from benchmarks.harness.copies import copy, installed_copies, tar_to_file
from benchmarks.harness.processes import Node
from benchmarks.harness.real_caches import MEASURED
from benchmarks.harness.rounds import Method
from benchmarks.harness.setting import Setting, fetch, method
from benchmarks.harness.tree import GeneratedTree, Tree, change_tree, check_equal

COPIED = ("cp", "tar_pipe", "rsync")
FANOUT = 16
NO_PEER = "modelexpress was not measured: make bench-peers"
NO_RSYNC = "rsync is not installed"
CLI_MIB = 32
CHANGED_FRACTION = 0.01
SETTLE_SECONDS = 1.5
"""After this the product takes a file for settled, and does not wait until it is."""
FANOUT_SHARE = 0.25
"""Of the tree's size and files: 16 installed copies and the source must fit into memory."""


def _fetch_seconds(target: Node, tree: GeneratedTree, place: Path) -> float:
    with fresh_root(place) as root:
        return fetch(target, tree, root)["seconds"]


def seal(setting: Setting) -> list[Method]:
    """Time from a directory in memory to what is served, against writing it into a tar file."""
    tree = setting.tree()
    methods = [
        method("seal", lambda: setting.cluster.publish(tree)),
        method("tar_cf", lambda: tar_to_file(tree, setting.ram)),
    ]
    if (peers := setting.peers) is not None:
        methods.append(method("reference_seal", lambda: peers.publish(tree)))
    return methods


def tmpfs(setting: Setting) -> list[Method]:
    """Fetch and install into memory, against local copies."""
    tree, target = setting.tree(), setting.cluster.target
    setting.cluster.publish(tree)
    return _in_memory(setting, tree, "tmpfs", lambda: _fetch_seconds(target, tree, setting.ram))


def real(setting: Setting) -> list[Method]:
    """The same with a cache that a real compiler made, which then uses what we installed."""
    cache = setting.cache
    assert cache is not None
    tree, target = cache.make(), setting.cluster.target
    setting.cluster.publish(tree)
    used = False

    def fetch_and_install() -> float:
        nonlocal used
        with fresh_root(setting.ram) as place:
            root = cache.root_at(place)
            root.parent.mkdir(parents=True, exist_ok=True)
            fetched = target.ask("fetch", model="benchmark", root=str(root), replace=False)
            cache.check_installed(tree, root)
            if not used:
                cache.check_use(tree, place)
                used = True
        seconds: float = fetched["seconds"]
        return seconds

    return _in_memory(setting, tree, cache.name, fetch_and_install)


def _in_memory(
    setting: Setting, tree: Tree, suffix: str, fetch_and_install: Callable[[], float]
) -> list[Method]:
    names = installed_copies(*COPIED)
    methods = [
        method(f"fetch_{suffix}", fetch_and_install),
        *(method(f"{name}_{suffix}", _copying(name, tree, setting.ram)) for name in names),
    ]
    if (peers := setting.peers) is not None:
        peers.publish(tree)
        methods.append(method(f"reference_{suffix}", lambda: peers.fetch(tree, setting.ram)))
    return methods


def _copying(name: str, tree: Tree, place: Path) -> Callable[[], float]:
    return lambda: copy(name, tree, place)


def disk(setting: Setting) -> list[Method]:
    """Fetch and install onto the disk, against local copies from memory to that disk."""
    tree = setting.tree()
    setting.cluster.publish(tree)
    names = installed_copies("cp", "cp_synced", "tar_pipe", "rsync")
    target, durable = setting.cluster.target, setting.cluster.new_target()
    durable.ask("renew", seed=False, durable=True)
    timings: dict[str, Callable[[], float]] = {
        "fetch_disk": lambda: _fetch_seconds(target, tree, setting.disk),
        "fetch_durable_disk": lambda: _fetch_seconds(durable, tree, setting.disk),
        **{f"{name}_disk": _copying(name, tree, setting.disk) for name in names},
    }
    if (peers := setting.peers) is not None:
        peers.publish(tree)
        timings["reference_disk"] = lambda: peers.fetch(tree, setting.disk)
    return [method(name, _after_flush(timing)) for name, timing in timings.items()]


def _after_flush(timing: Callable[[], float]) -> Callable[[], float]:
    def run() -> float:
        os.sync()  # so that nobody else's writes are timed
        return timing()

    return run


def cli(setting: Setting) -> list[Method]:
    """A whole process that fetches and installs a small cache into memory."""
    tree = setting.tree(min(CLI_MIB, setting.mib))
    setting.cluster.publish(tree)

    def ours() -> float:
        with fresh_root(setting.ram) as root:
            seconds = setting.cluster.run_cli(root)
            check_equal(tree.root, root, relocated=True)
        return seconds

    methods = [method("cli_process", ours)]
    if (peers := setting.peers) is not None:
        peers.publish(tree)
        methods.append(method("reference_process", lambda: peers.fetch_once(tree, setting.ram)))
    return methods


def incremental(setting: Setting) -> list[Method]:
    """Fetch all, then fetch what was published again after a hundredth of it changed."""
    tree = setting.tree()
    generation = 0

    def run() -> dict[str, float]:
        nonlocal generation
        generation += 1
        target = setting.cluster.target
        with fresh_root(setting.ram) as root:
            setting.cluster.publish(tree)
            full = fetch(target, tree, root)
            change_tree(tree, fraction=CHANGED_FRACTION, generation=generation)
            time.sleep(SETTLE_SECONDS)
            published = setting.cluster.publish(tree)
            changed = fetch(target, tree, root, replace=True)
        return {
            "fetch_full": full["seconds"],
            "fetch_changed": changed["seconds"],
            "seal_changed": published,
            "bytes_full": full["bytes"],
            "bytes_changed": changed["bytes"],
        }

    return [Method("incremental", run)]


def fanout(setting: Setting) -> list[Method]:
    """Targets of one source, each a process of its own: all at once, and one after the other."""
    tree = setting.tree(setting.mib * FANOUT_SHARE)
    setting.cluster.publish(tree)
    targets = [setting.cluster.new_target() for _ in range(FANOUT)]

    def run(at_once: bool) -> float:
        with contextlib.ExitStack() as resources:
            roots = [resources.enter_context(fresh_root(setting.ram)) for _ in targets]
            started = time.perf_counter()
            waiting: list[Node] = []
            for target, root in zip(targets, roots, strict=True):
                target.send("fetch", model="benchmark", root=str(root), replace=False)
                if at_once:
                    waiting.append(target)
                else:
                    target.answer()
            for target in waiting:
                target.answer()
            seconds = time.perf_counter() - started
            for root in roots:
                check_equal(tree.root, root, relocated=True)
        return seconds

    return [
        method("fanout_at_once", lambda: run(at_once=True)),
        method("fanout_in_turn", lambda: run(at_once=False)),
    ]


@dataclass(frozen=True)
class Group:
    """A group of figures, and which ratios are made of them: numerator and denominator."""

    methods: Callable[[Setting], list[Method]]
    ratios: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    nodes: int = 0
    """That it needs on shaped links; 0: on none."""
    cache: str = ""
    """The real cache that it is of, a key of benchmarks/harness/real_caches.py: MEASURED."""
    seconds: tuple[str, ...] = ()
    """Figures that the report has in any case, null where they were not measured."""
    lacking: str = NO_PEER
    """Why a ratio may be missing although the group was measured."""


def _compared(suffix: str) -> tuple[str, ...]:
    return tuple(f"{how}_{suffix}" for how in ("fetch", *COPIED, "reference"))


GROUPS: Mapping[str, Group] = {
    "seal": Group(seal, {"seal_over_tar": ("seal", "tar_cf")}),
    "tmpfs": Group(
        tmpfs,
        {
            "fetch_over_cp_tmpfs": ("fetch_tmpfs", "cp_tmpfs"),
            "fetch_over_reference": ("fetch_tmpfs", "reference_tmpfs"),
        },
        seconds=_compared("tmpfs"),
    ),
    **{f"real/{name}": Group(real, cache=name, seconds=_compared(name)) for name in MEASURED},
    "disk": Group(
        disk, {"fetch_over_cp_disk": ("fetch_disk", "cp_disk")}, seconds=_compared("disk")
    ),
    "cli": Group(cli, {"cli_over_reference": ("cli_process", "reference_process")}),
    "incremental": Group(
        incremental,
        {
            "incremental_time": ("fetch_changed", "fetch_full"),
            "incremental_bytes": ("bytes_changed", "bytes_full"),
        },
    ),
    "fanout": Group(fanout, {"fanout16_over_serial": ("fanout_at_once", "fanout_in_turn")}),
    "seeding": Group(
        shaped.seeding,
        {"seeding8_over_one": ("seeding_at_once", "one_alone")},
        nodes=1 + shaped.TARGETS,
    ),
    "resume": Group(
        shaped.resume,
        {
            "resume_time": ("fetch_resumed", "fetch_shaped"),
            "resume_bytes": ("bytes_resumed", "bytes_shaped"),
        },
        nodes=2,
    ),
    "compression": Group(
        shaped.compression,
        {
            "compressed_over_plain": ("fetch_auto", "fetch_plain"),
            "compressed_over_plain_random": ("fetch_auto_random", "fetch_plain_random"),
        },
        nodes=2,
    ),
}
