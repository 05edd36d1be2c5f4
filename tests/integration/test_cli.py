"""The main job through the command line: real processes, real NIXL reads."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_artifacts.kinds.registry import get_kind
from tests.support.child import Child
from tests.support.nodes import clean_environment
from tests.support.packing import pack_to_file
from tests.support.processes import COMMAND, Service, run_cli, serving

KEY = "A" * 52
IDENTITY: tuple[str, ...] = (
    "--model",
    "m",
    "--framework",
    "vllm",
    "--identity",
    "cuda_version=12.8",
)
IDENTITY += ("--identity", "gpu_arch=sm90", "--identity", "triton_version=3")
IDENTITY += ("--identity", "triton_key=k")


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
    """Return a Triton cache with one kernel and one lock."""
    entry = tmp_path / "warm" / KEY
    entry.mkdir(parents=True)
    (entry / "k.cubin").write_bytes(os.urandom(300_000))
    group = {"child_paths": {"k.cubin": str(entry / "k.cubin")}}
    (entry / "__grp__k.json").write_text(json.dumps(group))
    (entry / "k.lock").touch()
    return entry.parent


@pytest.fixture(name="publisher")
def _publisher(
    tmp_path: Path, env: dict[str, str], server: Service, cache: Path
) -> Iterator[Service]:
    places = ("--root", str(cache), "--bundle-root", str(tmp_path / "bundles"))
    args = ("--kind", "triton", *IDENTITY, *places, "--chunk-size", "64KiB")
    with serving("publish", *args, env=env, logs=tmp_path) as publisher:
        yield publisher


def fetch(tmp_path: Path, env: dict[str, str], *args: str) -> tuple[int, str, str]:
    common = ("--bundle-root", str(tmp_path / "received"), "--format", "json")
    done = run_cli("fetch-and-install", *IDENTITY, *common, *args, env=env)
    return done.returncode, done.stdout, done.stderr


def test_the_main_job(
    tmp_path: Path, env: dict[str, str], server: Service, cache: Path, publisher: Service
) -> None:
    (published,) = publisher.ready["published"]
    assert published["identity"]["gpu_arch"] == "sm90"
    assert published["identity_origins"]["gpu_arch"] == "stated"
    assert published["files"] == 2
    (skipped,) = published["roots"][0]["skipped"].values()
    assert skipped == {"count": 1, "examples": [f"{KEY}/k.lock"]}

    cold = tmp_path / "cold"
    root = ("--kind", "triton", "--root", f"triton={cold}")
    code, out, err = fetch(tmp_path, env, *root, "--dry-run")
    assert (code, err) == (0, "")
    assert json.loads(out)["planned"][0]["total_bytes"] == published["total_bytes"]
    assert not cold.exists()
    assert json.loads(out)["planned"][0]["already_installed"] is False

    code, out, err = fetch(tmp_path, env, *root)
    assert (code, err) == (0, "")
    (installed,) = json.loads(out)["installed"]
    assert installed["roots"][0]["installed"] == [KEY]
    assert installed["source"]["artifact_id"] == published["artifact_id"]
    assert Path(installed["receipt"]).is_file()
    assert (cold / KEY / "k.cubin").read_bytes() == (cache / KEY / "k.cubin").read_bytes()
    assert list((tmp_path / "received").iterdir()) == []

    code, out, err = fetch(tmp_path, env, *root)
    (again,) = json.loads(out)["installed"]
    assert (again["total_bytes"], again["roots"][0]["kept"]) == (0, [KEY])
    assert again["receipt"] == installed["receipt"]
    code, out, err = fetch(tmp_path, env, *root, "--dry-run")
    assert json.loads(out)["planned"][0]["already_installed"] is True
    code, out, err = fetch(tmp_path, env, *root, "--replace")
    assert json.loads(out)["installed"][0]["total_bytes"] == 0  # not even what is as it was fetched
    (cold / KEY / "k.cubin").write_bytes(b"changed")
    code, out, err = fetch(tmp_path, env, *root, "--replace")
    assert 0 < json.loads(out)["installed"][0]["total_bytes"] < published["total_bytes"]

    source_id = published["mx_source_id"]
    listed = json.loads(run_cli("sources", "list", "--format", "json", env=env).stdout)
    (source,) = listed["sources"]
    assert (source["mx_source_id"], source["kind"]) == (source_id, "triton")
    assert source["status"] == "ready"
    manifest = run_cli("inspect", "--source-id", source_id, "--format", "json", env=env)
    assert json.loads(manifest.stdout)["artifact_id"] == published["artifact_id"]
    bundle = tmp_path / "artifact.tar"
    pack_to_file(cold, bundle, get_kind("triton").pack)
    members = run_cli("inspect", str(bundle), "--format", "json", env=env)
    assert json.loads(members.stdout)["files"] == 2

    assert publisher.stop(signal.SIGTERM) == 0
    assert not list((tmp_path / "bundles").glob("*"))
    shown = run_cli("sources", "show", source_id, "--format", "json", env=env)
    assert json.loads(shown.stdout)["workers"][0]["status"] == "stale"
    assert server.stop(signal.SIGINT) == 0
    assert server.errors == ""


def test_several_kinds_are_done_in_part(
    tmp_path: Path, env: dict[str, str], publisher: Service
) -> None:
    roots = ("--root", f"triton={tmp_path / 'cold'}", "--root", f"inductor={tmp_path / 'none'}")
    code, out, err = fetch(tmp_path, env, "--kind", "triton", "--kind", "inductor", *roots)
    assert code == 3
    assert [done["kind"] for done in json.loads(out)["installed"]] == ["triton"]
    error = json.loads(err)
    assert (error["type"], error["exit_code"]) == ("KindsFailedError", 3)
    assert list(error["failures"]) == ["inductor"]


def test_nothing_fits(tmp_path: Path, env: dict[str, str], publisher: Service) -> None:
    root = ("--kind", "triton", "--root", str(tmp_path / "cold"))
    code, _, err = fetch(tmp_path, env, *root, "--model", "other")
    assert (code, json.loads(err)["type"]) == (10, "NoSourceError")
    code, _, err = fetch(tmp_path, env, *root, "--identity", "extra=1")
    assert (code, json.loads(err)["type"]) == (13, "IncompatibleSourceError")
    assert not (tmp_path / "cold").exists()


def test_places_that_cannot_be(tmp_path: Path, env: dict[str, str], publisher: Service) -> None:
    (tmp_path / "file").touch()
    for wrong in (
        ("--root", "/"),
        ("--root", "/proc/foo"),
        ("--bundle-root", f"{tmp_path}/file/x"),
    ):
        good = () if "--root" in wrong else ("--root", str(tmp_path / "cold"))
        for option in ((), ("--dry-run",)):
            code, _, err = fetch(tmp_path, env, "--kind", "triton", *good, *wrong, *option)
            error = json.loads(err)
            assert (code, error["type"]) == (2, "UnusablePlaceError")
            assert wrong[0] in error["hint"]
    assert not (tmp_path / "cold").exists()


def test_a_server_that_is_not_there(tmp_path: Path, env: dict[str, str], cache: Path) -> None:
    env["MX_SERVER_ADDRESS"] = "127.0.0.1:1"
    code, _, err = fetch(tmp_path, env, "--kind", "triton", "--root", str(tmp_path / "cold"))
    assert (code, json.loads(err)["type"]) == (14, "BackendUnavailableError")
    args = ("--kind", "triton", *IDENTITY, "--root", str(cache), "--format", "json")
    done = run_cli("publish", *args, env=env)
    assert (done.returncode, json.loads(done.stderr)["retryable"]) == (14, True)


def test_a_port_in_use_is_named(env: dict[str, str], server: Service) -> None:
    port = server.ready["address"].rpartition(":")[2]
    done = run_cli("serve", "--port", port, "--format", "json", env=env)
    error = json.loads(done.stderr)
    assert done.returncode == 2
    assert port in error["message"]
    assert error["hint"]


def test_serve_says_that_a_restart_loses_records_in_memory(env: dict[str, str]) -> None:
    with Child([*COMMAND, "serve", "--port", "0"], env=env) as server:
        assert (server.line() or "").startswith("127.0.0.1:")
        assert server.stop() == 0
        [line] = [line for line in server.errors.splitlines() if "memory" in line]
    assert "a restart loses them and other servers cannot read them" in line


def test_a_listener_that_others_reach_is_warned_of(tmp_path: Path, env: dict[str, str]) -> None:
    with serving("serve", "--host", "0.0.0.0", "--port", "0", env=env, logs=tmp_path) as server:
        warning = json.loads(server.errors)
        assert warning["type"] == "warning"
        assert "no authentication" in warning["message"]
        assert server.stop() == 0
