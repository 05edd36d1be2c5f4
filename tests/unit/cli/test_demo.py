"""The demo's rules: what it can run, what it accepts as a hit, what its processes may see."""

from __future__ import annotations

import sysconfig
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from mx_artifact_cli.demo import requirements
from mx_artifact_cli.demo.nodes import Node
from mx_artifact_cli.demo.requirements import check_compiler, runnable_kinds
from mx_artifact_cli.demo.result import JobResult
from mx_artifact_cli.demo.scenario import Comparison
from mx_artifacts.errors import ConfigurationError, MxArtifactsError

COLD = JobResult("inductor", 2, 0, 2, 12, 0, 30.5, {"torch": "2"}, {"autograd_misses": 2})
WARM = JobResult("inductor", 2, 2, 0, 0, 0, 4.25, {"torch": "2"}, {"autograd_misses": 0})


def comparison(cold: JobResult = COLD, warm: JobResult = WARM) -> Comparison:
    return Comparison(
        cold, warm, files=3, total_bytes=10240, transfer_seconds=0.5, install_seconds=0.25
    )


def test_a_result_is_read_from_the_last_line() -> None:
    assert JobResult.from_output(f"chatter\n{COLD.to_line()}\n") == COLD


@pytest.mark.parametrize("output", ["", "no json\n", '{"kind": "x"}\n', "[1]\n"])
def test_an_output_without_result_is_refused(output: str) -> None:
    with pytest.raises(MxArtifactsError, match="printed no result"):
        JobResult.from_output(output)


def test_all_hits_and_nothing_compiled_is_accepted() -> None:
    comparison().check()
    row = comparison().as_dict()
    assert (row["kind"], row["jobs"], row["hits"], row["misses"]) == ("inductor", 2, 2, 0)
    assert (row["cold_seconds"], row["warm_seconds"]) == (30.5, 4.25)


@pytest.mark.parametrize(
    ("change", "counted"),
    [
        ({"hits": 1, "misses": 1}, "1 of 2 jobs were hits.*1 misses"),
        ({"jobs": 1, "hits": 1}, "1 of 2 jobs were hits"),
        ({"rebuilt": 3}, "3 rebuilt"),
        ({"outside": 8}, "8 outside"),
        ({"details": {"autograd_misses": 1}}, "1 autograd_misses"),
    ],
)
def test_anything_compiled_or_read_elsewhere_is_refused(
    change: dict[str, object], counted: str
) -> None:
    with pytest.raises(MxArtifactsError, match=counted):
        comparison(warm=replace(WARM, **change)).check()  # type: ignore[arg-type]


@pytest.mark.parametrize("cold", [replace(COLD, hits=1), replace(COLD, misses=0)])
def test_a_cold_run_that_was_not_cold_is_refused(cold: JobResult) -> None:
    with pytest.raises(MxArtifactsError, match="shows nothing"):
        comparison(cold=cold).check()


def have(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    specs = {name: ModuleSpec(name, None) for name in modules}
    monkeypatch.setattr(requirements, "find_spec", specs.get)


def test_a_kind_whose_compiler_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, "torch")
    assert runnable_kinds([]) == (["inductor"], ["triton"])
    have(monkeypatch, "torch", "triton")
    assert runnable_kinds([]) == (["inductor", "triton"], [])
    assert runnable_kinds(["triton", "triton"]) == (["triton"], [])


def test_a_named_kind_whose_compiler_is_missing_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    have(monkeypatch, "torch")
    with pytest.raises(ConfigurationError, match="triton cannot be imported"):
        runnable_kinds(["triton"])
    have(monkeypatch)
    with pytest.raises(ConfigurationError, match="torch and triton cannot be imported"):
        runnable_kinds([])


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"g\+\+ was not found") as caught:
        check_compiler({"PATH": str(tmp_path)})
    assert "apt install g++" in caught.value.hint()
    compiler = tmp_path / "c++-of-mine"
    compiler.touch(mode=0o755)
    check_compiler({"PATH": str(tmp_path), "CXX": "c++-of-mine"})


def test_missing_headers_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "g++").touch(mode=0o755)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"/Python\.h does not exist"):
        check_compiler({"PATH": str(tmp_path)})


def test_a_node_keeps_the_users_caches_and_settings_out(tmp_path: Path) -> None:
    given = {"PATH": "/bin", "MX_SERVER_ADDRESS": "far:1", "TRITON_CACHE_DIR": "/mine", "CXX": "c"}
    node = Node(tmp_path / "node", given)
    environment = node.job_environment("triton")
    assert environment["TRITON_CACHE_DIR"] == str(tmp_path / "node" / "caches" / "triton")
    assert environment["TMPDIR"] == str(tmp_path / "node" / "tmp")
    assert (environment["PATH"], environment["CXX"]) == ("/bin", "c")
    assert "MX_SERVER_ADDRESS" not in environment
    assert "TRITON_CACHE_DIR" not in node.job_environment("inductor")


def test_hidden_caches_are_not_at_their_path(tmp_path: Path) -> None:
    node = Node(tmp_path / "node", {})
    node.root("triton").mkdir()
    node.hide_caches()
    assert not node.root("triton").exists()
