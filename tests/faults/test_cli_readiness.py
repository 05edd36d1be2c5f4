"""`publish` before the engine is ready, and of what some rank has not saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine import running_engine
from tests.support.kind_trees import SHA, make_tree
from tests.support.nodes import Cluster, warm_cache
from tests.support.processes import run_cli, serving

MEGA = f"torch_aot_compile/{SHA}"
FACTS = {
    **{"torch_version": "2.14", "cuda_version": "13.0", "triton_version": "3.8"},
    **{"gpu_arch": "sm90a", "gpu_name": "H100", "triton_key": "k", "machine": "x86_64"},
    **{"python_abi": "cpython-311", "libc": "glibc-2.36", "cpu_model": "c", "cpu_flags": "f"},
    **{"aten_cpu_capability": "AVX512", "backend_framework_version": "0.33"},
}
INDUCTOR = (
    *("--kind", "inductor", "--framework", "vllm"),
    *(word for pair in FACTS.items() for word in ("--identity", "=".join(pair))),
)


def test_nothing_is_sealed_before_the_engine_is_ready(cluster: Cluster, tmp_path: Path) -> None:
    cache = tmp_path / "warm"
    with running_engine() as engine:
        engine.statuses = [503, 200]

        def compile_at_second_poll() -> None:
            if engine.paths:
                warm_cache(cache)

        engine.at_poll = compile_at_second_poll
        with cluster.source(cache, "--settle", "50ms", MX_ARTIFACT_READY_URL=engine.url) as source:
            (published,) = source.ready["published"]
    assert engine.paths == ["/health", "/health"]
    assert published["files"] == 4


def test_an_engine_that_does_not_become_ready(cluster: Cluster, cache: Path) -> None:
    args = ("--ready-url", "http://127.0.0.1:1/health", "--ready-timeout", "100ms")
    code, error = cluster.publish(cache, *args)
    assert (code, error["type"], error["retryable"]) == (14, "EngineNotReadyError", True)
    assert "http://127.0.0.1:1/health does not answer" in error["message"]
    assert cluster.sources() == []


def test_a_node_that_is_not_the_head_needs_the_head_address(cluster: Cluster, cache: Path) -> None:
    args: tuple[str, ...] = ("--ready-url", "http://localhost:8000/health", "--node-rank", "1")
    code, error = cluster.publish(cache, *args)
    assert (code, error["type"]) == (2, "ConfigurationError")
    assert "--head-address" in error["hint"]
    args += ("--head-address", "127.0.0.1", "--ready-timeout", "100ms")
    code, error = cluster.publish(cache, *args)
    assert (code, error["type"]) == (14, "EngineNotReadyError")
    assert "http://127.0.0.1:8000/health" in error["message"]


@pytest.fixture(name="publish_args")
def _publish_args(cluster: Cluster, tmp_path: Path) -> tuple[str, ...]:
    """Return the arguments that publish a cache of which rank 3 of 8 has no model."""
    ranks = [rank for rank in range(8) if rank != 3]
    root = make_tree(tmp_path / "warm", {f"{MEGA}/rank_{rank}_0/model": None for rank in ranks})
    (root / MEGA / "rank_3_0").mkdir()
    places = ("--root", str(root), "--bundle-root", str(tmp_path / "sealed"))
    return ("publish", *INDUCTOR, "--model", cluster.model, *places)


def test_a_rank_without_its_model_is_a_warning(
    cluster: Cluster, tmp_path: Path, publish_args: tuple[str, ...]
) -> None:
    with serving(*publish_args, env=cluster.env, logs=tmp_path) as source:
        (published,) = source.ready["published"]
        warnings = [json.loads(line) for line in source.errors.splitlines()]
    lacking = {"rank_3_0": ["model"]}
    assert published["uneven_ranks"] == [{"directory": MEGA, "complete": 7, "lacking": lacking}]
    message = f"{MEGA}: 1 of 8 ranks lack files that other ranks have: rank_3_0 (model)"
    assert {"type": "warning", "message": message} in warnings


def refused(cluster: Cluster, *args: str) -> Any:
    done = run_cli(*args, "--format", "json", env=cluster.env)
    return done.returncode, json.loads(done.stderr.splitlines()[-1])


def test_ranks_that_are_required_and_not_complete(
    cluster: Cluster, publish_args: tuple[str, ...]
) -> None:
    code, error = refused(cluster, *publish_args, "--require-ranks", "8")
    assert (code, error["type"]) == (12, "BundleError")
    assert f"{MEGA} has 7 (rank_3_0 incomplete)" in error["message"]
    assert cluster.sources() == []
    assert cluster.sealed() == []


def test_ranks_of_a_kind_that_has_none(cluster: Cluster, cache: Path) -> None:
    code, error = cluster.publish(cache, "--require-ranks", "8")
    assert (code, error["type"]) == (2, "ConfigurationError")
