"""Time the stages of sealing, of fetching and installing, and of fetching what changed a little.

usage: python -m benchmarks.stages [--rounds N] [--mib N] [--files N] [--output FILE]

All in one process and one after the other, without a network: what is fetched are the bytes of the
bundle in memory, and stages that overlap in a real fetch (verifying, writing) are run on one
thread. Each is given in seconds that went by and in processor time of all threads, the least and
the median of the rounds. A part of a stage is called STAGE.PART and counted in the stage too.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.harness import conditions
from benchmarks.harness.cluster import fresh_root
from benchmarks.harness.figure_groups import CHANGED_FRACTION, SETTLE_SECONDS
from benchmarks.harness.moved import GENERATED
from benchmarks.harness.processes import REPOSITORY
from benchmarks.harness.tree import GeneratedTree, change_tree, check_equal, make_tree
from benchmarks.transfer import RAM, new_place, stop_in_order_on_signals, tell
from mx_artifacts.artifacts import tarred
from mx_artifacts.artifacts.factories import transfer_of_kind
from mx_artifacts.artifacts.protocol import ArtifactBundle, ArtifactSourceEndpoint, StagedArtifact
from mx_artifacts.artifacts.target.root_receiver import RootReceiver
from mx_artifacts.artifacts.tarred import TarredP2PArtifactTransfer
from mx_artifacts.bundle import pack
from mx_artifacts.bundle.index import map_bundle
from mx_artifacts.core.member_index import MemberIndex, joined
from mx_artifacts.install import installer
from mx_artifacts.install.commit import Committer
from mx_artifacts.install.staging import staging
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.runtime.gc_pause import gc_paused
from mx_artifacts.wire.extension import index_from_wire, index_to_wire

PARTS = (
    (pack, "scan_directory", "scan"),
    (pack, "lay_out", "layout"),
    (pack._Packer, "read_all", "read"),
    (pack._Packer, "finish", "finish"),
    (tarred, "seal", "chunk_sums"),
    (staging, "unchanged_entries", "begin.unchanged"),
    (staging, "begin_writing", "begin.resume"),
    (staging.Staging, "_require_intact", "install.intact"),
    (Committer, "commit", "install.commit"),
    (installer._Target, "judge_kept", "install.judge"),
    (installer, "save_receipt", "install.receipt"),
)
"""Functions of ours that are timed where they are called, and what they are called in a figure."""


class Watch:
    """Adds up what each stage takes in a round: seconds, and processor time of all threads [s]."""

    def __init__(self) -> None:
        self.phase = ""
        self.rounds: list[dict[str, tuple[float, float]]] = []

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the block as a stage of the phase; "" is the phase itself."""
        figure = f"{self.phase}.{name}" if name else self.phase
        before = self.rounds[-1].setdefault(figure, (0.0, 0.0))
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        self.rounds[-1][figure] = before[0] + wall, before[1] + cpu

    def timing(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return `call`, each call of which is a stage."""

        @functools.wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name):
                return call(*args, **kwargs)

        return timed

    def figures(self) -> dict[str, dict[str, float]]:
        """Return least and median of each stage, in the order in which they began."""
        figures = {}
        for name in self.rounds[-1]:
            wall, cpu = zip(*(each[name] for each in self.rounds), strict=True)
            figures[name] = {
                "least": min(wall),
                "median": statistics.median(wall),
                "least_processor": min(cpu),
                "median_processor": statistics.median(cpu),
            }
        return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=float, default=600)
    parser.add_argument("--files", type=int, default=12_000)
    parser.add_argument("--output", type=Path, default=REPOSITORY / "build/bench/stages.json")
    options = parser.parse_args()
    stop_in_order_on_signals()
    watch = Watch()
    with contextlib.ExitStack() as resources:
        place = Path(resources.enter_context(new_place(RAM)))
        tree = make_tree(place / "source", mib=options.mib, files=options.files)
        for owner, attribute, name in PARTS:
            timed = watch.timing(getattr(owner, attribute), name)
            resources.enter_context(mock.patch.object(owner, attribute, timed))
        for number in range(1 + options.rounds):  # the first one warms up
            tell(f"round {number}/{options.rounds}")
            watch.rounds.append({})
            run(watch, tree, place, number)
    del watch.rounds[0]
    made = {
        "conditions": {
            **conditions.machine(),
            "rounds": options.rounds,
            "tree": f"{options.mib:g} MiB in {options.files} files",
        },
        "stages": watch.figures(),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(made, indent=2) + "\n")
    print(table(made))
    return 0


def run(watch: Watch, tree: GeneratedTree, place: Path, number: int) -> None:
    """Seal and fetch all, then seal and fetch again what a hundredth of changed."""
    with fresh_root(place) as root:
        source, target = (_transfer(watch, place, at) for at in (tree.root, root))
        watch.phase = "seal"
        bundle, index = seal(watch, source)
        watch.phase = "fetch"
        fetch(watch, bundle, index, target)
        check_equal(tree.root, root, relocated=True)
        change_tree(tree, fraction=CHANGED_FRACTION, generation=1 + number)
        time.sleep(SETTLE_SECONDS)
        watch.phase = "seal_changed"
        changed, index = seal(watch, source, bundle)
        bundle.close()
        watch.phase = "fetch_changed"
        fetch(watch, changed, index, target)
        changed.close()
        check_equal(tree.root, root, relocated=True)


def _transfer(watch: Watch, place: Path, root: Path) -> TarredP2PArtifactTransfer:
    kind = get_kind(GENERATED.kind)
    fixups = tuple(watch.timing(each, "install.fixups") for each in kind.fixups)
    kind = dataclasses.replace(kind, fixups=fixups)
    return transfer_of_kind(kind, bundle_root=place / "bundles", roots={"": root})


def seal(
    watch: Watch, source: TarredP2PArtifactTransfer, previous: ArtifactBundle | None = None
) -> tuple[ArtifactBundle, MemberIndex]:
    """Return the bundle, and the index that is handed out with it."""
    with watch.stage(""):
        bundle = source.prepare_source(previous)
        with watch.stage("index"):
            (index,) = bundle.index_by_file().values()
    return bundle, index


def fetch(
    watch: Watch, bundle: ArtifactBundle, index: MemberIndex, target: TarredP2PArtifactTransfer
) -> None:
    """Do what a fetch does with a bundle, its bytes read where they are, and install it."""
    (file,) = bundle.manifest.files
    with watch.stage("index_to_wire"):
        pages = list(index_to_wire(file.file_index, index))
    with watch.stage("index_from_wire"), gc_paused():
        index = joined(map(index_from_wire, pages))
    with watch.stage("earlier"):  # in a fetch that is done while a source is asked for its index
        receiver = RootReceiver(target._wanted_bundles(), target.mx_source_type)
        receiver._earlier.receipts(target.roots[0].target_root)
    with watch.stage("map"), gc_paused():
        bundle_map = map_bundle(index, file.size, file.checksum)
    with watch.stage("begin"):
        spans = receiver.begin(bundle.manifest, {file.file_index: bundle_map})
    view = bundle.bundles[file.path].view
    with watch.stage("verify"):
        for span in spans:
            assert not span.damage(view[span.offset : span.end])
    with watch.stage("write"):
        for span in spans:
            receiver.write(span, view[span.offset : span.end])
    with watch.stage("finish"):
        receiver.finish()
    origin = ArtifactSourceEndpoint("source", "worker", 0, "here:1", bundle.artifact_id, 0)
    with watch.stage("install"):
        target.install(StagedArtifact(receiver.stagings, bundle.manifest, origin), replace=True)


def table(report: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    columns = ("least", "median", "least_processor", "median_processor")
    lines = [f"- {name}: {value}" for name, value in report["conditions"].items()]
    lines += ["", f"| stage [s] | {' | '.join(columns)} |", f"|{' --- |' * (1 + len(columns))}"]
    for name, figure in report["stages"].items():
        lines.append(f"| {name} | {' | '.join(f'{figure[c]:.3f}' for c in columns)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
