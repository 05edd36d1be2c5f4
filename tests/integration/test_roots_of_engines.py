"""`--framework` decides where caches are read and installed, in every verb and in the library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_artifacts.artifacts.target.fetch_values import FetchResult
from mx_artifacts.core.identity import BackendFramework, SourceIdentity
from mx_artifacts.errors import ExitCode
from mx_artifacts.identity.identify import probe_identity
from mx_artifacts.kinds.registry import get_kind
from tests.support.cli import RunCli, runner
from tests.support.fleet import Fleet, running_fleet

DEEP_GEMM = get_kind("deep_gemm")
ENTRY = "cache/kernel.gemm.0a1b"
SGLANG_ROOT, VLLM_ROOT = Path(".cache/deep_gemm"), Path(".cache/vllm/deep_gemm")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> RunCli:
    return runner(capsys)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("VLLM_CACHE_ROOT", "XDG_CACHE_HOME", "DG_JIT_CACHE_DIR", "SGLANG_DG_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("DJ_JIT_CACHE_DIR", "DEEP_GEMM_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MX_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "home"


@pytest.fixture
def fleet(tmp_path: Path, home: Path) -> Iterator[Fleet]:
    with running_fleet(tmp_path) as fleet:
        yield fleet


def identity_of(engine: str) -> SourceIdentity:
    stated = {
        "backend_framework": engine,
        **dict.fromkeys(("cuda_version", "deep_gemm_jit_key", "gpu_name", "gpu_sm_count"), "1"),
        **dict.fromkeys(("nvcc_version", "deep_gemm_include_dir"), "none"),
        "gpu_arch": "sm90",
    }
    return probe_identity(DEEP_GEMM, model_name="m", overrides=stated).identity


def fill(root: Path) -> None:
    (root / ENTRY).mkdir(parents=True)
    for name in ("kernel.cu", "kernel.cubin"):
        (root / ENTRY / name).write_bytes(b"\x7fELF" + bytes(100))


def moved(fleet: Fleet, home: Path, engine: str, root: Path) -> FetchResult:
    """Publish what is in the engine's own root, and fetch it into the same root of a new home."""
    fill(home / root)
    identity = identity_of(engine)
    publisher = fleet.publisher()
    published = publisher.publish(DEEP_GEMM, identity)
    assert [each.root for each in published.roots] == [home / root]
    (home / root).rename(home / "published")
    return fleet.fetcher().fetch_and_install(DEEP_GEMM, identity)


@pytest.mark.parametrize(("engine", "root"), [("sglang", SGLANG_ROOT), ("vllm", VLLM_ROOT)])
def test_publisher_and_fetcher_follow_the_identity(
    engine: str, root: Path, fleet: Fleet, home: Path
) -> None:
    report = moved(fleet, home, engine, root).report
    assert [each.root for each in report.roots] == [home / root]
    assert (home / root / ENTRY / "kernel.cubin").is_file()
    assert identity_of(engine).backend_framework is BackendFramework[engine.upper()]


def test_every_verb_finds_what_was_installed_for_an_engine(
    fleet: Fleet, home: Path, run: RunCli
) -> None:
    fetched = moved(fleet, home, "sglang", SGLANG_ROOT)
    of_sglang = ("--kind", "deep_gemm", "--framework", "sglang")
    for verb in ("verify", "used"):
        missed = run(verb, "--kind", "deep_gemm", "--framework", "vllm", "--format", "json")
        assert missed.code == ExitCode.USAGE
        assert str(home / VLLM_ROOT) in missed.error["message"]
        assert "--framework" in missed.error["hint"]
    assert run("verify", *of_sglang).code == ExitCode.OK
    used = run("used", *of_sglang, "--format", "json")
    assert used.data["used"][0]["receipt_path"] == str(fetched.report.receipt_path)
    checked = run("doctor", *of_sglang, "--server", fleet.address, "--format", "json")
    roots = [each["what"] for each in checked.data["checks"] if each["name"] == "deep_gemm root"]
    assert str(home / SGLANG_ROOT) in roots[0]
    assert run("uninstall", *of_sglang).code == ExitCode.OK
    assert not (home / SGLANG_ROOT / ENTRY).exists()


def test_quarantine_takes_an_artifact_out_of_the_roots_of_every_engine(
    fleet: Fleet, home: Path, run: RunCli
) -> None:
    fetched = moved(fleet, home, "sglang", SGLANG_ROOT)
    ended = run("quarantine", fetched.source.artifact_id)
    assert ended.code == ExitCode.OK
    assert not (home / SGLANG_ROOT / ENTRY).exists()
