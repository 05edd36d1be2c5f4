"""The roots of a transfer follow the engine, whether its package is installed here or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from mx_artifacts.artifacts.factories import (
    deep_gemm_cache_artifact_transfer,
    torch_compile_cache_artifact_transfer,
    transfer_of_kind,
)
from mx_artifacts.core.identity import BackendFramework
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.probes import engines

VLLM, SGLANG, NONE = BackendFramework.VLLM, BackendFramework.SGLANG, BackendFramework.UNKNOWN


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory, and none of the variables that would move a cache elsewhere."""
    for name in (
        "VLLM_CACHE_ROOT",
        "XDG_CACHE_HOME",
        "TORCHINDUCTOR_CACHE_DIR",
        "DG_JIT_CACHE_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("USER", "me")
    monkeypatch.setenv("LOGNAME", "me")
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "engine", "root"),
    [
        ("inductor", VLLM, ".cache/vllm/torch_compile_cache"),
        ("inductor", SGLANG, "torchinductor_me"),
        ("inductor", NONE, "torchinductor_me"),
        ("deep_gemm", VLLM, ".cache/vllm/deep_gemm"),
        ("deep_gemm", SGLANG, ".cache/deep_gemm"),
    ],
)
def test_a_named_engine_decides(kind: str, engine: BackendFramework, root: str, home: Path) -> None:
    transfer = transfer_of_kind(get_kind(kind), bundle_root=home, framework=engine)
    assert transfer.roots[0].target_root == home / root


def test_a_named_engine_decides_in_the_specifications_helpers(home: Path) -> None:
    vllm = torch_compile_cache_artifact_transfer(framework=VLLM)
    assert vllm.roots[0].source_root == home / ".cache/vllm/torch_compile_cache"
    sglang = deep_gemm_cache_artifact_transfer(framework=SGLANG)
    assert sglang.roots[0].source_root == home / ".cache/deep_gemm"


def test_without_a_name_it_is_the_engine_that_is_installed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "is_installed", lambda name: name == "sglang")
    assert deep_gemm_cache_artifact_transfer().roots[0].source_root == home / ".cache/deep_gemm"
    monkeypatch.setattr(engines, "is_installed", lambda name: name == "vllm")
    inductor = torch_compile_cache_artifact_transfer().roots[0]
    assert inductor.source_root == home / ".cache/vllm/torch_compile_cache"
    no_engine = torch_compile_cache_artifact_transfer(framework=NONE).roots[0]
    assert no_engine.source_root == home / "torchinductor_me"
