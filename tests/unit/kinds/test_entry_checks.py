"""Which entries of a live or damaged cache are shipped, kind by kind, and why others are not."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mx_artifacts.bundle.packed import PackReport
from mx_artifacts.errors import NothingToPublishError
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.kinds.registry import all_kinds, get_kind
from mx_artifacts.runtime.clock import FakeClock
from tests.support.kind_trees import (
    ARTIFACT,
    CPP,
    DEEP_JIT,
    FX,
    KEY,
    KIND_TREES,
    LITTER_TREE,
    MEGA,
    OTHER_KEY,
    SHA,
    TILE,
    expected_entries,
    make_tree,
    shared_library,
)
from tests.support.packing import pack_to_file

AN_HOUR = 3600.0
AOT = "aotautograd/aszevp37c/64hybo6j"
WRAPPER = "k2/ck2clcapnjgv4wsbh4ognqjfrrpdardsxfmg5qh72u4fxn6qlcau.py"
AUTOTUNE = "0.7.4/90a/1f2e/autotune_configs_dp0_rank1.json"
NORM = "0.7.4/90a/cached_ops/norm"
PAGE = "0.7.4/90a/cached_ops/page_90a_cute_dsl"
ADD = "add_0123456789abcdef"
CLASSIC = "0a1b2c3d4e"
INDEX = f"{CLASSIC}/rank_0_0/backbone/vllm_compile_cache.py"
BINARY = f"0.1.15/cuda-binaries/{SHA}"


def pack(kind: CacheKind, root: Path, age_seconds: float = AN_HOUR) -> PackReport:
    """Pack `root` as it will be when it has not changed for `age_seconds`; waits take no time."""
    clock = FakeClock(time.time() + age_seconds)
    return pack_to_file(root, root.parent / "b.tar", kind.pack, clock=clock)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def remove(path: Path) -> None:
    path.unlink()


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def garble(path: Path) -> None:
    path.write_bytes(b"[1, 2]")


def lead_away(path: Path) -> None:
    path.write_text(json.dumps({"child_paths": {"block.json": "/etc/passwd"}}))


def age(path: Path) -> None:
    """Make a file older than all that belongs to it."""
    os.utime(path, ns=(0, 0))


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)
def test_committed_entries_are_all_shipped(kind: CacheKind, tmp_path: Path) -> None:
    root = make_tree(tmp_path / "root", KIND_TREES[kind.name] | LITTER_TREE)
    report = pack(kind, root)
    assert {skip.reason for skip in report.skipped if "excluded by" not in skip.reason} == set()
    assert expected_entries(kind).keys() <= set(report.paths)
    assert report.file_count == len(expected_entries(kind))


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)
def test_committed_entries_are_shipped_at_once(kind: CacheKind, tmp_path: Path) -> None:
    """Also when all of it was written just now, as on a node that has just installed it."""
    root = make_tree(tmp_path / "root", KIND_TREES[kind.name])
    assert pack(kind, root, age_seconds=0.1).file_count == len(expected_entries(kind))


FAILS = "; Triton fails on it at a hit, and does not compile again"
Case = tuple[str, str, str, Callable[[Path], object], str]
FAULTS: dict[str, Case] = {
    # name: kind, entry, file of it, what happened to the file, the reason
    "triton: half a group file": (
        *("triton", KEY, f"{KEY}/__grp__block.json", cut),
        "__grp__block.json is damaged: no JSON with child_paths",
    ),
    "triton: no group file": (
        *("triton", KEY, f"{KEY}/__grp__block.json", remove),
        "it has no group file, so its compiler has not committed it",
    ),
    "triton: a group of no children": (
        *("triton", KEY, f"{KEY}/__grp__block.json", garble),
        "__grp__block.json is damaged: no JSON with child_paths",
    ),
    "triton: a child is missing": (
        *("triton", KEY, f"{KEY}/block.json", remove),
        "__grp__block.json lists block.json, which is missing",
    ),
    "triton: a child elsewhere": (
        *("triton", KEY, f"{KEY}/__grp__block.json", lead_away),
        f"Triton group {KEY}/__grp__block.json lists 'block.json' at '/etc/passwd', which is not "
        "in the key directory of the group",
    ),
    "triton: empty cubin": (
        *("triton", KEY, f"{KEY}/block.cubin", empty),
        f"block.cubin is empty{FAILS}",
    ),
    "triton: a cubin of three bytes": (
        *("triton", KEY, f"{KEY}/block.cubin", lambda path: path.write_bytes(b"\x7fEL")),
        f"block.cubin is cut short{FAILS}",
    ),
    "triton: a cubin of one byte": (
        *("triton", KEY, f"{KEY}/block.cubin", lambda path: path.write_bytes(b"\x7f")),
        f"block.cubin is cut short{FAILS}",
    ),
    "triton: half of the metadata": (
        *("triton", KEY, f"{KEY}/block.json", cut),
        f"block.json is not JSON{FAILS}",
    ),
    "triton: empty metadata": (
        *("triton", KEY, f"{KEY}/block.json", empty),
        f"block.json is empty{FAILS}",
    ),
    "triton: helper library cut short": (
        *("triton", OTHER_KEY, f"{OTHER_KEY}/cuda_utils.cpython-311-x86_64-linux-gnu.so", cut),
        f"cuda_utils.cpython-311-x86_64-linux-gnu.so is cut short{FAILS}",
    ),
    "inductor: library cut short": (
        *("inductor", f"{CPP}.so", f"{CPP}.so", cut),
        f"{CPP[3:]}.so is cut short",
    ),
    "inductor: empty library": (
        *("inductor", f"{CPP}.so", f"{CPP}.so", empty),
        f"{CPP[3:]}.so is empty",
    ),
    "inductor: library whose linker is at work": (
        *("inductor", f"{CPP}.so", f"{CPP}.so", lambda path: path.write_bytes(bytes(4096))),
        f"{CPP[3:]}.so is not a shared library",
    ),
    "inductor: empty graph": (
        *("inductor", f"fxgraph/wf/{FX}/unwqsxsok", f"fxgraph/wf/{FX}/unwqsxsok", empty),
        "unwqsxsok is empty",
    ),
    "inductor: empty autograd result": (
        *("inductor", AOT, AOT, empty),
        "64hybo6j is empty",
    ),
    "inductor: empty wrapper": (
        *("inductor", WRAPPER, WRAPPER, empty),
        "ck2clcapnjgv4wsbh4ognqjfrrpdardsxfmg5qh72u4fxn6qlcau.py is empty",
    ),
    "inductor: Triton's group is missing": (
        *("inductor", f"triton/0/{KEY}", f"triton/0/{KEY}/__grp__block.json", remove),
        "it has no group file, so its compiler has not committed it",
    ),
    "vllm: no model": (
        *("inductor", MEGA, f"{MEGA}/rank_0_0/model", remove),
        "no rank has saved its model yet",
    ),
    "vllm: empty model": (
        *("inductor", MEGA, f"{MEGA}/rank_0_0/model", empty),
        "model is empty",
    ),
    "vllm: damaged group inside": (
        *("inductor", MEGA, f"{MEGA}/inductor_cache/triton/0/{KEY}/__grp__block.json", cut),
        f"inductor_cache/triton/0/{KEY}: __grp__block.json is damaged: no JSON with child_paths",
    ),
    "vllm: artifact is missing": (
        *("inductor", CLASSIC, f"{CLASSIC}/rank_0_0/backbone/{ARTIFACT}", remove),
        f"rank_0_0/backbone/vllm_compile_cache.py names {ARTIFACT}, which is missing",
    ),
    "vllm: artifact is empty": (
        *("inductor", CLASSIC, f"{CLASSIC}/rank_0_0/backbone/{ARTIFACT}", empty),
        f"rank_0_0/backbone/vllm_compile_cache.py names {ARTIFACT}, which is empty",
    ),
    "vllm: half an index": (
        *("inductor", CLASSIC, INDEX, cut),
        "rank_0_0/backbone/vllm_compile_cache.py is cut short: vLLM cannot read it",
    ),
    "vllm: no index yet": (
        *("inductor", CLASSIC, INDEX, remove),
        "rank_0_0/backbone has no vllm_compile_cache.py, so that rank has not saved it yet",
    ),
    "deep_gemm: not committed": (
        *("deep_gemm", DEEP_JIT, f"{DEEP_JIT}/.committed", remove),
        "it has no .committed, so its compiler has not committed it",
    ),
    "deep_gemm: committed without code": (
        *("deep_gemm", DEEP_JIT, f"{DEEP_JIT}/kernel.cubin", remove),
        "kernel.cubin is missing",
    ),
    "deep_gemm: empty cubin": (
        *("deep_gemm", DEEP_JIT, f"{DEEP_JIT}/kernel.cubin", empty),
        "kernel.cubin is empty",
    ),
    "deep_gemm 2.x: no cubin": (
        *("deep_gemm", "cache/kernel.gemm.0123abcd", "cache/kernel.gemm.0123abcd/kernel.cubin"),
        remove,
        "kernel.cubin is missing",
    ),
    "deep_gemm 2.x: empty cubin": (
        *("deep_gemm", "cache/kernel.gemm.0123abcd", "cache/kernel.gemm.0123abcd/kernel.cubin"),
        empty,
        "kernel.cubin is empty",
    ),
    "deep_gemm 2.x: no source": (
        *("deep_gemm", "cache/kernel.gemm.0123abcd", "cache/kernel.gemm.0123abcd/kernel.cu"),
        remove,
        "kernel.cu is missing",
    ),
    "tilelang: no manifest": (
        *("tilelang", TILE, f"{TILE}/manifest.json", remove),
        "it has no manifest.json, so TileLang has not committed it",
    ),
    "tilelang: half a manifest": (
        *("tilelang", TILE, f"{TILE}/manifest.json", cut),
        "manifest.json is not JSON",
    ),
    "tilelang: odd manifest": (
        *("tilelang", TILE, f"{TILE}/manifest.json", garble),
        "its manifest is damaged",
    ),
    "tilelang: file of another length": (
        *("tilelang", TILE, f"{TILE}/device_kernel.cu", grow),
        "device_kernel.cu is not as long as its manifest says",
    ),
    "tilelang: damaged file of the right length": (
        *("tilelang", TILE, f"{TILE}/executable.so", flip),
        "executable.so is damaged (SHA-256)",
    ),
    "tilelang: file is missing": (
        *("tilelang", TILE, f"{TILE}/params.json", remove),
        "params.json is missing",
    ),
    "tilelang: damaged binary": (
        *("tilelang", BINARY, f"{BINARY}/kernel.cubin", flip),
        "kernel.cubin is damaged (SHA-256)",
    ),
    "tilelang: binary without metadata": (
        *("tilelang", BINARY, f"{BINARY}/metadata.json", remove),
        "it lacks its binary or metadata.json",
    ),
    "tilelang: empty autotune result": (
        *("tilelang", "0.1.15/linux-x86_64/autotuner/k1"),
        *("0.1.15/linux-x86_64/autotuner/k1/best.json", empty),
        "best.json is empty",
    ),
    "cute_dsl: empty": (
        *("cute_dsl", f"cute_dsl_{SHA}.mlir", f"cute_dsl_{SHA}.mlir", empty),
        f"cute_dsl_{SHA}.mlir is empty",
    ),
    "flashinfer: not linked": (
        *("flashinfer", NORM, f"{NORM}/norm.so", remove),
        "not built: it has no library",
    ),
    "flashinfer: library cut short": (
        *("flashinfer", NORM, f"{NORM}/norm.so", cut),
        "norm.so is cut short",
    ),
    "flashinfer: not linked again": (
        *("flashinfer", NORM, f"{NORM}/norm.so", age),
        "norm.so is older than its object files: not linked again, or copied without times",
    ),
    "flashinfer: no ninja log": (
        *("flashinfer", NORM, f"{NORM}/.ninja_log", remove),
        ".ninja_log is missing",
    ),
    "flashinfer: no ninja deps": (
        *("flashinfer", NORM, f"{NORM}/.ninja_deps", remove),
        ".ninja_deps is missing",
    ),
    "flashinfer: no object": (
        *("flashinfer", NORM, f"{NORM}/norm.cuda.o", remove),
        "its object files are missing, so that ninja would build it again",
    ),
    "flashinfer: CuTe kernels without metadata": (
        *("flashinfer", PAGE, f"{PAGE}/meta.json", remove),
        "it has no meta.json, so its compiler has not committed it",
    ),
    "flashinfer: CuTe metadata cut short": (
        *("flashinfer", PAGE, f"{PAGE}/meta.json", cut),
        "meta.json is not JSON",
    ),
    "flashinfer: empty CuTe kernel": (
        *("flashinfer", PAGE, f"{PAGE}/page.o", empty),
        "page.o is empty",
    ),
    "flashinfer: autotune file cut short": (
        *("flashinfer", AUTOTUNE, AUTOTUNE, cut),
        "autotune_configs_dp0_rank1.json is not JSON",
    ),
    "tvm_ffi: not linked": (
        *("tvm_ffi", ADD, f"{ADD}/add.so", remove),
        "not built: it has no library",
    ),
    "tvm_ffi: empty object": (
        *("tvm_ffi", ADD, f"{ADD}/cpp_0.o", empty),
        "cpp_0.o is empty",
    ),
    "tvm_ffi: not linked again": (
        *("tvm_ffi", ADD, f"{ADD}/add.so", age),
        "add.so is older than its object files: not linked again, or copied without times",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_entry_with_a_fault_is_left_out_whole_and_alone(name: str, tmp_path: Path) -> None:
    kind_name, entry, path, damage, reason = FAULTS[name]
    kind = get_kind(kind_name)
    root = make_tree(tmp_path / "root", KIND_TREES[kind_name])
    make_tree(root, {"another.mlir" if kind_name == "cute_dsl" else "another": None})
    damage(root / path)
    report = pack(kind, root)
    left_out = {s.path: s.reason for s in report.skipped if "excluded by" not in s.reason}
    assert left_out == {entry: reason}
    kept = {p for p, e in expected_entries(kind).items() if e != entry}
    assert kept < set(report.paths)
    assert not any(p == entry or p.startswith(entry + "/") for p in report.paths)


@contextmanager
def held(lock: Path) -> Iterator[None]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize(
    ("kind_name", "entry", "lock"),
    [
        ("flashinfer", NORM, "0.7.4/90a/cached_ops/tmp/norm.lock"),
        ("tvm_ffi", ADD, f"{ADD}/lock"),
        ("inductor", f"{CPP}.so", f"locks/{CPP[3:].partition('.')[0]}.lock"),
    ],
)
def test_an_entry_that_is_being_built_is_left_out_until_its_lock_is_free(
    kind_name: str, entry: str, lock: str, tmp_path: Path
) -> None:
    kind = get_kind(kind_name)
    root = make_tree(tmp_path / "root", {**KIND_TREES[kind_name], "another": None})
    with held(root / lock):
        report = pack(kind, root)
    left_out = {s.path: s.reason for s in report.skipped if "excluded by" not in s.reason}
    assert left_out == {entry: "a process is building it"}
    assert pack(kind, root).file_count == len(expected_entries(kind)) + 1


def test_cute_kernels_that_are_in_place_do_not_wait_for_others(tmp_path: Path) -> None:
    kind = get_kind("flashinfer")
    root = make_tree(tmp_path / "root", KIND_TREES["flashinfer"])
    (root / PAGE / "next.o.tmp.4242").write_text("half")
    with held(root / "0.7.4/90a/cached_ops/tmp/page_90a_cute_dsl.lock"):
        report = pack(kind, root)
    assert {f"{PAGE}/page.o", f"{PAGE}/meta.json"} <= set(report.paths)
    assert f"{PAGE}/next.o.tmp.4242" not in report.paths


def test_a_cache_of_faults_only_is_nothing_to_publish_and_says_why(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "root", {f"{KEY}/block.cubin": None})
    with pytest.raises(NothingToPublishError, match=r"1 left out; .*no group file"):
        pack(get_kind("triton"), root)


def test_a_group_that_is_committed_while_it_is_waited_for_is_shipped(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "root", {f"{KEY}/block.cubin": None})

    class Committing(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            group = {"child_paths": {"block.cubin": f"/x/{KEY}/block.cubin"}}
            if not (root / KEY / "__grp__block.json").exists():
                (root / KEY / "__grp__block.json").write_text(json.dumps(group))

    clock = Committing(time.time() + 0.1)
    report = pack_to_file(root, tmp_path / "b.tar", get_kind("triton").pack, clock=clock)
    assert (report.file_count, report.skipped) == (2, ())


def test_times_in_any_order_matter_only_while_a_group_is_young(tmp_path: Path) -> None:
    """`cp -r`, object stores and unpacking leave them so; a compiler at work does, too."""
    triton = get_kind("triton")
    root = make_tree(tmp_path / "root", KIND_TREES["triton"])
    age(root / KEY / "__grp__block.json")
    assert pack(triton, root).skipped[0].reason.startswith("excluded by")
    clock = FakeClock(time.time() + 0.1)
    report = pack_to_file(root, tmp_path / "b.tar", triton.pack, clock=clock)
    assert report.file_count == 4  # after having waited until it was a second old
    aged_seconds = clock.now() - (root / KEY / "__grp__block.json").stat().st_ctime
    assert aged_seconds > 1.0 - 1e-5  # a time of today as a float is exact to 2.4e-7 s


def test_a_killed_compilation_does_not_cost_the_vllm_tree_around_it(tmp_path: Path) -> None:
    tree = {f"{MEGA}/rank_0_0/model": MEGA, f"{MEGA}/inductor_cache/triton/0/{KEY}/b.cubin": MEGA}
    root = make_tree(tmp_path / "root", tree)
    assert pack(get_kind("inductor"), root).file_count == 2


def test_artifacts_saved_unpacked_are_directories(tmp_path: Path) -> None:
    tree = {INDEX: None, f"{CLASSIC}/rank_0_0/backbone/{ARTIFACT}/py/x.py": None}
    root = make_tree(tmp_path / "root", tree)
    assert pack(get_kind("inductor"), root).skipped == ()


@pytest.mark.parametrize("suffix", ["ttir", "ptx", "source"])
def test_an_empty_file_that_a_group_lists_makes_it_unfit(suffix: str, tmp_path: Path) -> None:
    root = make_tree(tmp_path / "root", KIND_TREES["triton"])
    group = root / KEY / "__grp__block.json"
    document = json.loads(group.read_text())
    document["child_paths"][f"block.{suffix}"] = f"/made/here/{KEY}/block.{suffix}"
    (root / KEY / f"block.{suffix}").write_bytes(b"")
    group.write_text(json.dumps(document))
    left_out = {skip.path: skip.reason for skip in pack(get_kind("triton"), root).skipped}
    assert left_out[KEY] == f"block.{suffix} is empty"


def test_every_index_of_vllm_is_read(tmp_path: Path) -> None:
    """Versions nest the handle differently."""
    root = make_tree(tmp_path / "root", {INDEX: None})
    nested = {((1, 2), 0, "i"): {"graph_handle": [ARTIFACT, "/x"], "cache_key": "k"}}
    (root / INDEX).write_text(repr(nested))
    with pytest.raises(NothingToPublishError, match=re.escape(f"names {ARTIFACT}")):
        pack(get_kind("inductor"), root)


@pytest.mark.parametrize("size", [1, 63, 64, 100, 131])
def test_a_library_of_any_lesser_length_is_refused(size: int, tmp_path: Path) -> None:
    whole = shared_library()
    assert size < len(whole)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "x.so").write_bytes(whole[:size])
    with pytest.raises(NothingToPublishError, match=r"x\.so is (cut short|not a shared library)"):
        pack(get_kind("triton"), tmp_path / "root")
    (tmp_path / "root" / "x.so").write_bytes(whole)
    assert pack(get_kind("triton"), tmp_path / "root").file_count == 1


def test_the_interpreters_own_libraries_pass() -> None:
    """Real linkers' output: what ELF rules of ours would wrongly refuse."""
    import _json

    from mx_artifacts.bundle.entry import EntryFile, EntryView
    from mx_artifacts.filesystem.beneath import Directory
    from mx_artifacts.kinds.entry_checks import binary_fault

    library = Path(getattr(_json, "__file__", None) or os.path.realpath("/proc/self/exe"))
    whole = library.read_bytes()
    for length, fault in ((len(whole), None), (len(whole) - 1, "x.so is cut short")):
        view = EntryView(
            "x.so",
            {"x.so": EntryFile(length, 0)},
            content=lambda _path, count, offset: whole[offset : offset + count],
            root=Directory(-1, Path("/")),
            age_seconds=AN_HOUR,
        )
        assert binary_fault(view) == fault
