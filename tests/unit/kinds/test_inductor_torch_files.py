"""What torch serialised and is cut short or damaged is left out: the engine would not start."""

from __future__ import annotations

import io
import os
import pickle
import zlib
from pathlib import Path

import pytest

from mx_artifacts.kinds.existing_entries import existing_entry_judge
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.runtime.clock import FakeClock
from tests.support.kind_trees import ARTIFACT, MEGA, make_tree
from tests.support.packing import pack_to_file

INDUCTOR = get_kind("inductor")
CLASSIC = "0a1b2c3d4e"
INDEX = f"{CLASSIC}/rank_0_0/backbone/vllm_compile_cache.py"
SAVED = f"{CLASSIC}/rank_0_0/backbone/{ARTIFACT}"
MODEL = f"{MEGA}/rank_0_0/model"
GRAPH = "fxgraph/wf/fwfnmdt4/unwqsxsok"
OTHER = "k2/other"


def artifact(name: bytes = b"CacheCompiledArtifact", payload: bytes = b"graph" * 999) -> bytes:
    """Return what `CompiledArtifact.save` of torch 2.14 writes, as far as its frame goes."""
    parts = b"".join(len(part).to_bytes(8, "big") + part for part in (name, b"k" * 32, payload))
    return zlib.crc32(parts).to_bytes(4, "big") + parts


def left_out(root: Path) -> dict[str, str]:
    """Pack `root`, old enough to be judged; return what was left out."""
    make_tree(root, {OTHER: OTHER})
    clock = FakeClock(os.stat(root).st_ctime + 3600)
    report = pack_to_file(root, root.parent / "b.tar", INDUCTOR.pack, clock=clock)
    return {skip.path: skip.reason for skip in report.skipped}


def put(root: Path, path: str, content: bytes) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(content)


PICKLES = {
    "one frame": pickle.dumps([str(number) for number in range(100)]),
    "frames, and long bytes between them": pickle.dumps(
        [b"x" * 100_000, ["y" * 70_000, bytearray(90_000)], list(range(50_000))], protocol=5
    ),
    "long bytes at the end": pickle.dumps(b"x" * 100_000, protocol=4),
    "no frame": pickle.dumps(None, protocol=4),
}


@pytest.mark.parametrize("path", [MODEL, GRAPH])
@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_that_is_cut_short_anywhere_is_left_out(
    name: str, path: str, tmp_path: Path
) -> None:
    whole, root = PICKLES[name], tmp_path / "root"
    put(root, path, whole)
    assert left_out(root) == {}
    file = path.rpartition("/")[2]
    for length in {len(whole) - 1, len(whole) // 2, len(whole) // 3, 2, 1} - {len(whole)}:
        put(root, path, whole[:length])
        entry = MEGA if path == MODEL else path
        assert left_out(root) == {entry: f"{file} is cut short"}, length


def test_a_pickle_that_is_cut_after_a_stop_byte_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "root", MODEL, pickle.dumps(b"." * 100_000, protocol=4)[:-10])
    assert left_out(tmp_path / "root") == {MEGA: "model is cut short"}


def test_pickles_of_other_forms_are_not_judged(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    unframed = pickle._Pickler(buffer, protocol=3)
    unframed.dump(["a", 1])
    put(tmp_path / "root", MODEL, buffer.getvalue())
    put(tmp_path / "root", GRAPH, pickle.dumps(["a", 1], protocol=0))
    assert left_out(tmp_path / "root") == {}


@pytest.mark.parametrize("name", [b"CacheCompiledArtifact", b"AOTCompiledArtifact"])
def test_an_artifact_that_is_not_what_torch_wrote_is_left_out(name: bytes, tmp_path: Path) -> None:
    whole, root = artifact(name), tmp_path / "root"
    make_tree(root, {INDEX: CLASSIC})
    put(root, SAVED, whole)
    assert left_out(root) == {}
    reason = f"rank_0_0/backbone/vllm_compile_cache.py names {ARTIFACT}, which is cut short"
    zeroed = whole[:2000] + bytes(len(whole) - 2000)  # as after a loss of power
    for content in (whole[:-1], whole[:40], whole[:14], whole[:3], zeroed):
        put(root, SAVED, content)
        assert left_out(root) == {CLASSIC: f"{reason} or damaged"}, content[:40]


def test_artifacts_of_other_forms_are_not_judged(tmp_path: Path) -> None:
    make_tree(tmp_path / "root", {INDEX: CLASSIC})
    put(tmp_path / "root", SAVED, bytes(7) + b"\x20" + b"k" * 200)  # torch 2.8: no CRC, no name
    assert left_out(tmp_path / "root") == {}


def test_an_existing_tree_that_vllm_only_described_yields_to_a_whole_one(tmp_path: Path) -> None:
    root, fetched = tmp_path / "root", tmp_path / "fetched"
    make_tree(root, {f"{CLASSIC}/rank_0_0/backbone/cache_key_factors.json": CLASSIC})
    make_tree(fetched, {INDEX: CLASSIC, SAVED: CLASSIC})
    judge = existing_entry_judge(INDUCTOR)
    assert judge(root, CLASSIC, fetched).unusable_reason == (
        "it has no rank_0_0/backbone/vllm_compile_cache.py, without which vLLM compiles again"
    )
    assert judge(root, CLASSIC, None).unusable_reason == ""
