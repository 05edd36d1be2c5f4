"""Files of a cache that are made to cost memory, time or a crash do not."""

from __future__ import annotations

import json
import os
import pickle
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.kinds.base import EntryVerdict
from mx_artifacts.kinds.entry_checks import MAX_JSON_BYTES
from mx_artifacts.kinds.existing_entries import existing_entry_judge, fetched_differs
from mx_artifacts.kinds.flashinfer.cute_modules import MAX_META_BYTES, match_cute_modules
from mx_artifacts.kinds.inductor import torch_files
from mx_artifacts.kinds.inductor.vllm_factors import first_factors, flat_factors
from mx_artifacts.kinds.inductor.vllm_hash_directories import rank_sets
from mx_artifacts.kinds.inductor.vllm_indexes import relocate_vllm_indexes
from mx_artifacts.kinds.ninja.build_log import MAX_ENTRIES, parse_log
from mx_artifacts.kinds.ninja.deps_log import MAX_RECORDS, PathRecord, format_deps, parse_deps
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.kinds.tilelang import make_staging_directories
from mx_artifacts.kinds.triton.group_files import (
    MAX_GROUP_FILE_BYTES,
    MAX_GROUPS,
    relocate_triton_groups,
)
from tests.support.kind_trees import KEY, SHA

TREE = "0a1b2c3d4e"
INDEX = f"{TREE}/rank_0_0/backbone/vllm_compile_cache.py"
ROOT = Path("/b/root")


@contextmanager
def little_memory(most_bytes: int = 128 << 20) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most_bytes
    finally:
        tracemalloc.stop()


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# --- vLLM's indexes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "[" + "1," * 20_000 + "]",
        "{" + "(1,2):[{}]," * 3_000 + "}",
        "(" * 6_000_000,
        "-" * 1_000_000 + "1",
        "[" + "1+" * 1_000_000 + "1]",
        "{[]: 1}",
        "{{}: 1}",
        f"['artifact_{'x' * 5_000}']",
        "['artifact_\0']",
        f"['/{'x' * 5_000}']",
        f"['/{TREE}/{'x' * 300}']",
    ],
    ids=lambda text: text[:12],
)
def test_an_index(tmp_path: Path, text: str) -> None:
    staged, root = tmp_path / "staged", tmp_path / "root"
    write(staged / INDEX, text.encode())
    write(root / INDEX, text.encode())
    with little_memory():
        report = relocate_vllm_indexes(staged, ROOT)
        verdict = existing_entry_judge(get_kind("inductor"))(root, TREE, None)
    assert all(len(reason) < 400 for reason in report.dropped.values())
    assert len(verdict.unusable_reason + verdict.unverified_reason) < 400
    assert report.dropped.keys() == {TREE} or verdict.unusable_reason == ""


def test_an_index_that_is_no_regular_file(tmp_path: Path) -> None:
    (tmp_path / INDEX).parent.mkdir(parents=True)
    (tmp_path / INDEX).symlink_to("/dev/zero")
    assert "vLLM cannot read it" in relocate_vllm_indexes(tmp_path, ROOT).dropped.get(TREE, "") or (
        not os.path.isfile(tmp_path / INDEX)
    )


def test_ranks_that_are_far_apart() -> None:
    paths = [f"{TREE}/rank_{n}_{n}/model" for n in (0, 999_999)]
    with little_memory(1 << 20):
        (found,) = rank_sets([*paths, f"{TREE}/rank_{'9' * 250}_0/model"])
    assert (found.complete, dict(found.lacking)) == (2, {})


def test_factors_with_long_paths() -> None:
    document = {"n" * 500_000: dict.fromkeys(map(str, range(50_000)), 1)}
    with little_memory(), pytest.raises(ValueError, match="more than"):
        flat_factors(document)
    content = json.dumps(document).encode()
    with little_memory():
        assert first_factors([content]) == {}


# --- pickles -------------------------------------------------------------------------------------


def test_a_pickle_is_not_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"touch {tmp_path}/sprung",)

    write(tmp_path / "fxgraph/wf/f/one", pickle.dumps(Trap(), protocol=4))
    write(tmp_path / f"torch_aot_compile/{SHA}/rank_0_0/model", pickle.dumps(Trap(), protocol=5))
    judge = existing_entry_judge(get_kind("inductor"))
    assert judge(tmp_path, "fxgraph/wf/f/one", None) == EntryVerdict()
    assert judge(tmp_path, f"torch_aot_compile/{SHA}", None) == EntryVerdict()
    assert not (tmp_path / "sprung").exists()


def test_a_pickle_of_nothing_but_lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"\x80\x04" + b"X\0\0\0\0" * 4_000 + b"."
    write(tmp_path / "fxgraph/wf/f/one", content)
    monkeypatch.setattr(torch_files, "_MAX_STEPS", 1_000)
    read, reads = EntryView.read, 0

    def counted(*arguments: Any) -> bytes:
        nonlocal reads
        reads += 1
        return read(*arguments)

    monkeypatch.setattr(EntryView, "read", counted)
    judge = existing_entry_judge(get_kind("inductor"))
    assert judge(tmp_path, "fxgraph/wf/f/one", None) == EntryVerdict()
    assert 1_000 <= reads < 1_010


# --- JSON ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"[" * 2_000_000, b"[" + b"[]," * 3_000_000 + b"[]]", b"9" * 1_000_000]
)
def test_a_document(tmp_path: Path, content: bytes) -> None:
    write(tmp_path / KEY / "cuda_utils.so", b"")
    write(tmp_path / KEY / "f.autotune.json", content)
    with little_memory():
        fault = existing_entry_judge(get_kind("triton"))(tmp_path, KEY, None).unusable_reason
    too_long = len(content) > MAX_JSON_BYTES
    assert ("too long to be checked" if too_long else "is not JSON") in fault


def test_a_manifest_that_promises_odd_names(tmp_path: Path) -> None:
    entry = f"0.1/linux/kernels/{SHA}"
    names: dict[str, object] = {"x" * 100_000: {}, "../../../etc/passwd": {}}
    write(tmp_path / entry / "manifest.json", json.dumps({"files": names}).encode())
    fault = existing_entry_judge(get_kind("tilelang"))(tmp_path, entry, None).unusable_reason
    assert fault.endswith("... is missing")
    assert len(fault) < 300


def test_a_file_where_tilelang_makes_a_directory(tmp_path: Path) -> None:
    write(tmp_path / "0.1/linux/.staging", b"")
    (tmp_path / "0.1/linux/kernels").mkdir()
    make_staging_directories(tmp_path, ROOT)
    assert (tmp_path / "0.1/linux/.staging").is_file()


META = "0.7/90a/cached_ops/m_cute_dsl/meta.json"


@pytest.mark.parametrize("kind", ["deep", "long", "fifo", "names"])
def test_a_meta_file(tmp_path: Path, kind: str) -> None:
    staged, root = tmp_path / "staged", tmp_path / "root"
    content = {"deep": b"[" * 50_000, "long": b'{"a":1}' + b" " * MAX_META_BYTES}.get(kind, b"{}")
    if kind == "names":
        content = json.dumps({"\x1b[2J" + "x" * 1_000 + str(n): n for n in range(50)}).encode()
    write(staged / META, content)
    write(root / META, b'{"a": 1}')
    if kind == "fifo":
        (root / META).unlink()
        os.mkfifo(root / META)
    (reason,) = match_cute_modules(staged, root).dropped.values()
    assert len(reason) < 2_000
    assert reason.isprintable()


# --- Triton's groups -----------------------------------------------------------------------------


def test_groups_that_are_long_or_many(tmp_path: Path) -> None:
    long = b'{"child_paths": {}, "x": "' + b"x" * MAX_GROUP_FILE_BYTES + b'"}'
    write(tmp_path / KEY / "__grp__f.json", long)
    assert "too long" in relocate_triton_groups(tmp_path, ROOT).dropped[KEY]
    for number in range(400):
        write(tmp_path / KEY / f"__grp__{number}.json", b" " * MAX_GROUP_FILE_BYTES)
    with little_memory(32 << 20):
        report = relocate_triton_groups(tmp_path, ROOT)
    assert f"more than {MAX_GROUPS} group files" in report.dropped[KEY]


# --- ninja's logs --------------------------------------------------------------------------------


def test_logs_of_many_small_records() -> None:
    with little_memory(256 << 20):
        with pytest.raises(ValueError, match="too long"):
            parse_log(b"# ninja log v7\n" + b"1\t1\t1\to\tf\n" * (MAX_ENTRIES + 1))
        with suppress(ValueError):
            parse_deps(format_deps((PathRecord(b"p"),)) + b"\xfc\xff\x07\x80" + b"\0" * 0x7FFFC)
    with pytest.raises(ValueError, match="more than"):
        parse_deps(format_deps((PathRecord(b"p"),) * (MAX_RECORDS + 1)))
    with pytest.raises(ValueError, match="too long"):
        parse_deps(format_deps((PathRecord(b"p" * 500_000),) * 17))


# --- what they share -----------------------------------------------------------------------------


def test_files_that_are_compared(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write(ours / "f", b"1")
    theirs.mkdir()
    assert not fetched_differs("f", ours, theirs)
    write(theirs / "f", b"1")
    assert not fetched_differs("f", ours, theirs)
    os.truncate(theirs / "f", 1 << 40)
    assert fetched_differs("f", ours, theirs)
