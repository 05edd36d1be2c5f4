"""Profiles, `why` and kinds without a number of their own, through the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.nodes import clean_environment
from tests.support.processes import Service, run_cli, serving

KEY = "A" * 52
FIELDS = ("cuda_version=12.8", "triton_version=3", "triton_key=k")
IDENTITY: tuple[str, ...] = ("--model", "m", "--framework", "vllm", "--arch", "sm_90")
IDENTITY += tuple(word for pair in FIELDS for word in ("--identity", pair))


@pytest.fixture(name="env")
def _env(tmp_path: Path) -> dict[str, str]:
    return clean_environment(tmp_path / "home")


@pytest.fixture(name="server")
def _server(tmp_path: Path, env: dict[str, str]) -> Iterator[Service]:
    with serving("serve", "--port", "0", env=env, logs=tmp_path) as server:
        env["MX_SERVER_ADDRESS"] = server.ready["address"]
        yield server


@pytest.fixture(name="cache")
def _cache(tmp_path: Path) -> Path:
    entry = tmp_path / "warm" / KEY
    entry.mkdir(parents=True)
    (entry / "k.cubin").write_bytes(b"cubin")
    group = {"child_paths": {"k.cubin": str(entry / "k.cubin")}}
    (entry / "__grp__k.json").write_text(json.dumps(group))
    return entry.parent


def run(env: dict[str, str], *args: str) -> tuple[int, Any, str]:
    done = run_cli(*args, "--format", "json", env=env)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def fetch(env: dict[str, str], tmp_path: Path, *args: str) -> tuple[int, Any, str]:
    bundles = ("--bundle-root", str(tmp_path / "received"))
    return run(env, "fetch-and-install", *bundles, *args)


def test_one_artifact_under_both_profiles(
    tmp_path: Path, env: dict[str, str], server: Service, cache: Path
) -> None:
    kind = ("--kind", "triton", *IDENTITY)
    args = (*kind, "--root", str(cache), "--bundle-root", str(tmp_path / "bundles"))
    with serving("publish", *args, "--profile", "both", env=env, logs=tmp_path) as publisher:
        (published,) = publisher.ready["published"]
        (also,) = published["also_source_ids"]
        warning = publisher.errors.splitlines()[0]
        assert "does not include machine, python_abi, libc" in json.loads(warning)["message"]

        for profile, source in (("strict", published["mx_source_id"]), ("reference", also)):
            root = tmp_path / profile
            code, done, said = fetch(
                env, tmp_path, *kind, "--root", str(root), "--profile", profile
            )
            assert (code, bool(said)) == (0, profile == "reference")
            assert done["installed"][0]["source"]["mx_source_id"] == source
            assert (root / KEY / "k.cubin").read_bytes() == b"cubin"

        # A node that differs in what only the strict profile has.
        other = ("--identity", "machine=aarch64", "--root", str(tmp_path / "none"))
        assert fetch(env, tmp_path, *kind, *other)[0] == 13
        assert fetch(env, tmp_path, *kind, *other, "--profile", "reference")[0] == 0

        code, why, _ = run(env, "why", *kind)
        assert (code, why["would_be_used"]) == (0, [published["mx_source_id"]])
        code, why, _ = run(env, "why", *kind, "--identity", "libc=musl")
        assert (code, why["would_be_used"]) == (13, [])
        (difference,) = why["candidates"][0]["differences"]
        assert (difference["field"], difference["here"]) == ("libc", "musl")
        assert "same container image" in difference["advice"]
        assert why["roots"][0]["decided_by"] == "default ~/.triton/cache"
        shown = run_cli("why", *kind, "--identity", "libc=musl", env=env).stdout
        assert "none of 2 sources would be used; the most similar one differs in 1 field" in shown
        assert "published under the reference's profile" in shown
        code, why, _ = run(
            env,
            "why",
            "--kind",
            "cute_dsl",
            "--model",
            "m",
            "--arch",
            "sm90",
            "--identity",
            "cuda_version=1",
            "--identity",
            "cutlass_dsl_version=1",
        )
        assert (code, why["verdict"]) == (10, "no source serves this kind")

        assert publisher.stop() == 0
    for source in (published["mx_source_id"], also):
        _, shown, _ = run(env, "sources", "show", source)
        assert [worker["status"] for worker in shown["workers"]] == ["stale"]


def test_publishing_without_the_gpu_names_what_else_must_be_stated(
    env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "cache").mkdir()
    kind = ("--kind", "deep_gemm", "--model", "m", "--identity", "deep_gemm_jit_key=k")
    code, _, said = run(
        {**env, "CUDA_VISIBLE_DEVICES": ""},
        *("why", *kind, "--arch", "sm_90", "--identity", "cuda_version=13.0"),
    )
    assert code == 2
    hint = json.loads(said)["hint"]
    assert hint.endswith("--identity gpu_name=VALUE --identity gpu_sm_count=VALUE")


def test_a_generic_cache(tmp_path: Path, env: dict[str, str], server: Service) -> None:
    warm, cold = tmp_path / "warm", tmp_path / "cold"
    (warm / "deep").mkdir(parents=True)
    (warm / "deep" / "a.bin").write_bytes(b"a")
    generic = ("--kind", "generic", "--model", "m", "--identity", "compiler=7.1")
    code, _, said = run(env, "publish", *generic)
    assert (code, json.loads(said)["hint"]) == (2, "state it with --root DIR")
    args = (*generic, "--root", str(warm), "--bundle-root", str(tmp_path / "bundles"))
    with serving("publish", *args, env=env, logs=tmp_path):
        _, listed, _ = run(env, "sources", "list", "--kind", "generic")
        assert [source["kind"] for source in listed["sources"]] == ["generic"]
        assert run(env, "sources", "list", "--kind", "inductor")[1]["sources"] == []
        code, told, _ = run(env, "why", *generic)  # for which nobody needs the root
        assert (code, told["verdict"]) == (0, "1 source would be used")
        assert told["roots"][0]["state"].endswith("has no default root; state it with --root DIR")
        code, done, said = fetch(env, tmp_path, *generic, "--root", str(cold))
        assert (code, said) == (0, "")
        assert done["installed"][0]["roots"][0]["installed"] == ["deep/a.bin"]
        assert (cold / "deep" / "a.bin").read_bytes() == b"a"
        other = (*generic[:-1], "compiler=7.2", "--root", str(tmp_path / "none"))
        assert fetch(env, tmp_path, *other)[0] == 13
        assert not (tmp_path / "none").exists()


def test_the_autotune_root_is_off_unless_stated(
    tmp_path: Path, env: dict[str, str], server: Service
) -> None:
    stated: tuple[str, ...] = (
        "torch_version=2",
        "cuda_version=13",
        "flashinfer_version=1",
        "ninja_version=1",
    )
    stated += ("gpu_name=H100",)  # which the autotune root needs
    kind: tuple[str, ...] = ("--kind", "flashinfer", "--model", "m", "--arch", "sm90")
    kind += tuple(word for pair in stated for word in ("--identity", pair))
    warm = tmp_path / "home"
    autotune = warm / ".cache" / "vllm" / "flashinfer_autotune_cache"
    autotune.mkdir(parents=True)
    (autotune / "rank0.json").write_text("{}")
    module = warm / ".cache" / "flashinfer" / "1" / "90a" / "cached_ops" / "norm_90a_cute_dsl"
    module.mkdir(parents=True)
    (module / "norm.o").write_bytes(b"object")
    (module / "meta.json").write_text('{"arch": "sm_90a"}')
    at_root = ("--root", f"flashinfer/autotune={autotune}")
    code, _, said = run(env, "publish", *kind, *at_root)
    assert code == 2
    assert "expert_parallel_size" in json.loads(said)["message"]
    bundles = ("--bundle-root", str(tmp_path / "bundles"))
    with serving("publish", *kind, *bundles, env=env, logs=tmp_path) as publisher:
        (published,) = publisher.ready["published"]
        assert [root["name"] for root in published["roots"]] == ["flashinfer"]
        assert published["files"] == 2
