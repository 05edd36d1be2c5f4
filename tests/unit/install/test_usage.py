"""Whether an engine used what was installed: what its files tell, kind by kind."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from mx_artifacts import usage_of
from mx_artifacts.errors import InstallError
from mx_artifacts.install import usage
from mx_artifacts.install.base import ArtifactOrigin, RootInstall
from mx_artifacts.install.usage import UsageReport, UsageVerdict
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.node.mounts import keeps_access_times, mount_of
from tests.support.install_cases import fill, install_roots, make_bundle, picture

TICK_SECONDS = 0.02
"""More than the kernel's tick (at most 10 ms), by which files are stamped."""
KEY, OTHER = "A" * 52, "B" * 52
TRITON = {f"{KEY}/k.cubin": b"cubin", f"{KEY}/k.json": b"{}"}
MX_FACTORS = {"env": {"VLLM_HOST_IP": "10.0.0.1"}, "config": "c", "code": "d"}


def install(
    tmp_path: Path, kind_name: str, files: Mapping[str, bytes], artifact_id: str = "ab" * 32
) -> Path:
    """Install `files` into `tmp_path`/root as a kind; return the receipt's path."""
    kind = get_kind(kind_name)
    bundle = make_bundle(tmp_path / f"{artifact_id[:4]}.tar", files)
    origin = ArtifactOrigin(artifact_id, "source", "worker", "h:1", kind.name)
    root = RootInstall("", tmp_path / "root", kind.pack.entry_of)
    receipt = install_roots([(root, bundle)], artifact=origin, lock_timeout_seconds=9).receipt_path
    time.sleep(TICK_SECONDS)
    return receipt


def judge(receipt: Path) -> tuple[UsageVerdict, UsageReport]:
    report = usage_of(receipt)
    assert report.reason
    assert bool(report.next_step) == (report.verdict is not UsageVerdict.HIT)
    return report.verdict, report


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mount the root noatime, as far as the code can see."""
    monkeypatch.setattr(usage, "keeps_access_times", lambda path: False)


@pytest.fixture
def seeing(tmp_path: Path) -> None:
    if not keeps_access_times(tmp_path):
        pytest.skip(f"{mount_of(tmp_path)} keeps no access times")


@pytest.mark.usefixtures("seeing")
def test_unread_entries_are_unused_and_a_read_is_a_hit(tmp_path: Path) -> None:
    receipt = install(tmp_path, "triton", TRITON)
    verdict, report = judge(receipt)
    assert verdict is UsageVerdict.UNUSED
    assert report.roots[0].unread == (KEY,)
    assert "another directory" in report.next_step
    before = picture(tmp_path / "root")  # reads every file, as an engine would
    verdict, report = judge(receipt)
    assert verdict is UsageVerdict.HIT
    assert (report.roots[0].read, report.next_step) == ((KEY,), "")
    assert picture(tmp_path / "root") == before


@pytest.mark.usefixtures("blind")
def test_without_access_times_nothing_new_is_not_yet_a_hit(tmp_path: Path) -> None:
    """Unknown is not empty, and not a hit either."""
    receipt = install(tmp_path, "triton", TRITON)
    verdict, report = judge(receipt)
    assert verdict is UsageVerdict.UNKNOWN
    assert report.roots[0].unread == ()


@pytest.mark.usefixtures("blind")
def test_a_lock_of_the_compiler_shows_that_it_looked(tmp_path: Path) -> None:
    receipt = install(tmp_path, "tvm_ffi", {"add_01/add.so": b"so", "add_01/build.ninja": b"x"})
    (tmp_path / "root/add_01/lock").touch()
    verdict, report = judge(receipt)
    assert verdict is UsageVerdict.HIT
    assert report.roots[0].signs == ("add_01/lock",)


@pytest.mark.usefixtures("blind")
def test_deep_gemm_marks_a_hit_itself(tmp_path: Path) -> None:
    files = {"cache/gemm.01/kernel.cubin": b"c", "cache/gemm.01/.committed": b""}
    receipt = install(tmp_path, "deep_gemm", files)
    assert judge(receipt)[0] is UsageVerdict.UNKNOWN
    os.utime(tmp_path / "root/cache/gemm.01/.committed")
    verdict, report = judge(receipt)
    assert verdict is UsageVerdict.HIT
    assert report.roots[0].signs == ("cache/gemm.01/.committed",)


@pytest.mark.parametrize(
    ("kind", "installed", "compiled", "entry"),
    [
        ("triton", TRITON, f"{OTHER}/k.cubin", OTHER),
        ("tilelang", {"k/kernels/a/x.so": b"1"}, "k/kernels/b/x.so", "k/kernels/b"),
        ("flashinfer", {"0/90/cached_ops/a/a.so": b"1"}, "0/90/cached_ops/b/b.so", None),
        ("tvm_ffi", {"a_1/a.so": b"1"}, "b_1/b.so", "b_1"),
        ("deep_gemm", {"cache/a/k.cubin": b"1"}, "cache/b/k.cubin", "cache/b"),
        ("cute_dsl", {"cute_dsl_a.mlir": b"1"}, "cute_dsl_b.mlir", "cute_dsl_b.mlir"),
        ("inductor", {"fxgraph/a/fa/1": b"1"}, "fxgraph/b/fb/2", "fxgraph/b/fb/2"),
        ("inductor", {"aa/ca.main.so": b"1"}, "bb/cb.main.so", "bb/cb.main.so"),
    ],
)
def test_an_entry_compiled_in_addition_to_ours_is_a_recompilation(
    tmp_path: Path, kind: str, installed: dict[str, bytes], compiled: str, entry: str | None
) -> None:
    receipt = install(tmp_path, kind, installed)
    fill(tmp_path / "root", {compiled: b"new"})
    verdict, report = judge(receipt)
    assert verdict is UsageVerdict.RECOMPILED
    assert report.roots[0].new == (entry or "0/90/cached_ops/b",)
    assert report.roots[0].new[0] in report.reason


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize(
    ("kind", "files", "written"),
    [
        pytest.param("triton", TRITON, "tmp.pid_1_ab/k.cubin", id="staging litter"),
        pytest.param("inductor", {"ab/cab.py": b"1"}, "xy/cxy.py", id="a wrapper out of a pickle"),
        pytest.param("tvm_ffi", {"a_1/a.so": b"1"}, "a_1/.ninja_log", id="ninja's own files"),
    ],
)
def test_files_that_a_hit_writes_are_no_recompilation(
    tmp_path: Path, kind: str, files: dict[str, bytes], written: str
) -> None:
    receipt = install(tmp_path, kind, files)
    fill(tmp_path / "root", {written: b"new"})
    assert judge(receipt)[0] is not UsageVerdict.RECOMPILED


def test_an_entry_of_ours_that_was_built_again_is_a_recompilation(tmp_path: Path) -> None:
    receipt = install(tmp_path, "tvm_ffi", {"add_01/add.so": b"so", "add_01/x.o": b"o"})
    fill(tmp_path / "root", {"add_01/add.so": b"so"})  # the same bytes, linked again
    verdict, report = judge(receipt)
    assert verdict is UsageVerdict.RECOMPILED
    assert report.roots[0].rewritten == ("add_01",)


def test_older_entries_and_those_of_another_install_are_not_new(tmp_path: Path) -> None:
    fill(tmp_path / "root", {f"{OTHER}/k.cubin": b"here before"})
    old_ns = 10**18
    os.utime(tmp_path / "root" / OTHER / "k.cubin", ns=(old_ns, old_ns))
    first = install(tmp_path, "triton", TRITON)
    second = install(tmp_path, "triton", {"C" * 52 + "/k.cubin": b"c"}, "cd" * 32)
    for receipt in (first, second):
        verdict, report = judge(receipt)
        assert verdict is not UsageVerdict.RECOMPILED
        assert report.roots[0].new == ()


def test_a_root_that_was_removed_is_unused(tmp_path: Path) -> None:
    receipt = install(tmp_path, "triton", TRITON)
    (tmp_path / "root").rename(tmp_path / "away")
    verdict, report = judge(receipt)
    assert verdict is UsageVerdict.UNUSED
    assert report.roots[0].gone == (KEY,)


def factors(**changed: object) -> bytes:
    return json.dumps(MX_FACTORS | changed).encode()


@pytest.mark.parametrize(
    ("changed", "name", "values"),
    [
        pytest.param(  # pain 1.5: --max-num-batched-tokens 8192 on the source, 1024 here
            {"config": "max_num_batched_tokens=1024"},
            "config",
            ("c", "max_num_batched_tokens=1024"),
            id="configuration",
        ),
        pytest.param(  # pain 2.5: a pod's own address in the environment hash
            {"env": {"VLLM_HOST_IP": "10.0.0.2"}},
            "env.VLLM_HOST_IP",
            ("10.0.0.1", "10.0.0.2"),
            id="environment",
        ),
    ],
)
def test_vllm_in_another_hash_directory_is_a_recompile_that_names_the_factor(
    tmp_path: Path, changed: dict[str, object], name: str, values: tuple[str, str]
) -> None:
    installed, in_use = "b3b24f9e91", "b3502dab6c"
    backbone = "rank_0_0/backbone"
    receipt = install(
        tmp_path,
        "inductor",
        {
            f"{installed}/{backbone}/artifact_compile_range_1_2_subgraph_0": b"compiled",
            f"{installed}/{backbone}/cache_key_factors.json": factors(),
        },
    )
    fill(
        tmp_path / "root",
        {
            f"{in_use}/{backbone}/artifact_compile_range_1_2_subgraph_0": b"again",
            f"{in_use}/{backbone}/cache_key_factors.json": factors(**changed),
        },
    )
    verdict, report = judge(receipt)
    assert verdict is UsageVerdict.RECOMPILED
    assert report.roots[0].new == (in_use,)
    assert report.roots[0].differences == {name: values}
    assert "another hash directory" in report.next_step
    assert name in report.next_step


def test_a_receipt_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match="not a valid receipt"):
        usage_of(tmp_path / "none.json")
