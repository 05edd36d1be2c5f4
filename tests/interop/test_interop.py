"""The deployed reference package and we serve and fetch from each other, for real.

The reference runs as processes in an environment of its own (`make interop` makes it); we run as
users run us, through the command line. Both sides read over NIXL.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts import settings
from mx_artifacts.core.identity import SourceIdentity, SourceType, compute_mx_source_id
from mx_artifacts.identity.identify import probe_identity
from mx_artifacts.kinds.registry import get_kind
from tests.support.peers import Peer
from tests.support.processes import Service, last_object, run_cli, serving
from tests.support.trees import Tree, read_tree, write_tree

pytestmark = pytest.mark.interop

CHUNK_BYTES = 64 * 1024
MODEL = "org/mödel"
KEY = "HJJAPFRJ3FOLEWKDZ5SP46MVTXNGY6HRKTI6SFOUH7TBZHIQKG2Q"
LONG = "fused_attention_forward_" + "with_a_name_that_ustar_cannot_hold_" * 5
NOISE = random.Random(0).randbytes(5 * CHUNK_BYTES + 1)


def triton_tree(root: Path) -> Tree:
    """Return a Triton cache as Triton would have written it at `root`."""
    children = {name: str(root / KEY / name) for name in (f"{LONG}.cubin", f"{LONG}.json")}
    return {
        KEY: {
            f"{LONG}.cubin": NOISE,
            f"{LONG}.json": b'{"name": "k"}',
            f"__grp__{LONG}.json": json.dumps({"child_paths": children}).encode(),
            "größe-日本語.source": "é".encode(),
            "empty.ttir": b"",
        },
        "deep": {"empty": {}, "nested-" + "x" * 90: {"y" * 90: {"z" * 90: NOISE[:10]}}},
        "emoji-🚀": b"rocket",
    }


def flashinfer_tree(root: Path) -> Tree:
    """Return FlashInfer's modules; nothing in this one depends on `root`."""
    # A CuTe kernel, which any node takes as it is; a ninja module would have to be a real one.
    module = {"meta.json": b'{"arch": "sm_90a"}', f"{LONG}.o": NOISE, "empty": b""}
    return {"0.7.4": {"90a": {"cached_ops": {"norm_90a_cute_dsl": module, "leer": {}}}}}


def autotune_tree(root: Path) -> Tree:
    """Return what FlashInfer's autotuner keeps."""
    return {
        "0.7.4": {
            "90a": {"1f2e": {"autotune_configs_größe.json": b"[" + b" " * CHUNK_BYTES + b"]"}}
        }
    }


@dataclass(frozen=True)
class Case:
    """A cache kind: what its roots hold, by root name, and what of its identity is stated."""

    kind: str
    trees: Mapping[str, Callable[[Path], Tree]]
    stated: Mapping[str, str] = field(default_factory=dict)

    def roots(self, directory: Path) -> dict[str, Path]:
        return {name: directory / (name or "primary") for name in self.trees}

    def write(self, directory: Path) -> dict[str, Path]:
        roots = self.roots(directory)
        for name, root in roots.items():
            write_tree(root, self.trees[name](root))
        return roots

    def identity(self) -> SourceIdentity:
        probed = probe_identity(
            get_kind(self.kind), model_name=MODEL, overrides=self.stated, env={"PATH": ""}
        )
        return probed.identity

    def peer_parameters(self, server: Service, roots: Mapping[str, Path]) -> dict[str, Any]:
        return {
            "server": server.ready["address"],
            "identity": self.identity().as_dict(),
            "roots": {name or "primary": str(root) for name, root in roots.items()},
        }

    def cli_arguments(self, roots: Mapping[str, Path]) -> list[str]:
        arguments = ["--model", MODEL, "--kind", self.kind]
        for name, root in roots.items():
            arguments += ["--root", f"{self.kind}{'/' if name else ''}{name}={root}"]
        for name, value in self.stated.items():
            arguments += ["--identity", f"{name}={value}"]
        return arguments


TOOLS = {"cuda_version": "13.0", "gpu_arch": "sm90", "machine": "x86_64", "libc": "glibc-2.36"}
CASES = [
    Case(
        "triton",
        {"": triton_tree},
        {**TOOLS, "triton_version": "3.8.0", "triton_key": "aB1", "python_abi": "cpython-311"},
    ),
    Case(
        "flashinfer",
        {"": flashinfer_tree, "autotune": autotune_tree},
        {
            **TOOLS,
            "torch_version": "2.13.0",
            "flashinfer_version": "0.7.4",
            "ninja_version": "1.13.2",
            "tvm_ffi_version": "0.1.15",
            "cuda_home": "/usr/local/cuda",
            "nvcc_version": "13.0",
            "cxx_version": "none",
            "gpu_name": "NVIDIA H100 80GB HBM3",
            "cudnn_frontend_version": "none",
            "tensor_parallel_size": "1",
            "pipeline_parallel_size": "1",
            "expert_parallel_size": "1",
        },
    ),
]


@pytest.fixture(name="case", params=CASES, ids=lambda case: case.kind)
def _case(request: pytest.FixtureRequest) -> Case:
    case: Case = request.param
    return case


@pytest.fixture(name="env")
def _env(tmp_path: Path) -> dict[str, str]:
    ours = {name for setting in settings.SETTINGS for name in setting.names}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    (tmp_path / "tmp").mkdir()
    return kept | {
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "MX_ARTIFACT_TRANSFER_CHUNK_SIZE": str(CHUNK_BYTES),  # both sides read it
        "MX_TRANSPORT": "nixl",  # the reference knows no other
    }


@pytest.fixture(name="peer")
def _peer(tmp_path: Path, env: dict[str, str]) -> Peer:
    return Peer(tmp_path / "peer", env)


@pytest.fixture(name="server")
def _server(tmp_path: Path, env: dict[str, str], peer: Peer) -> Iterator[Service]:
    with serving("serve", "--port", "0", env=env, logs=tmp_path) as server:
        env["MX_SERVER_ADDRESS"] = server.ready["address"]
        yield server


def assert_installed(case: Case, written_for: Mapping[str, Path], at: Mapping[str, Path]) -> None:
    """Compare each root at `at`, byte for byte, with what its compiler wrote for `written_for`."""
    for name, root in at.items():
        expected = root.with_name(f"{root.name}-expected")
        write_tree(expected, case.trees[name](written_for[name]))
        assert read_tree(root) == read_tree(expected)


def test_their_client_uses_our_central_server(peer: Peer, server: Service) -> None:
    identity = SourceIdentity(
        mx_source_type=SourceType.TRITON_CACHE,
        model_name=MODEL,
        tensor_parallel_size=8,
        gpu_arch="sm90",
        extra_parameters={"triton_key": "aB1", "Ключ": "Ä"},
    )
    given = {"server": server.ready["address"], "identity": identity.as_dict()}
    answer = peer.run("peer_central.py", given)
    source_id = compute_mx_source_id(identity)
    listed = [[source_id, "0badcafe", 3, "cuda"]]
    assert answer == {
        "mx_source_id": source_id,
        "own_mx_source_id": source_id,
        "ready_before_update": [],
        "updated": True,
        "ready": listed,
        "everything": listed,
        "found": True,
        "worker": {
            "worker_rank": 3,
            "metadata_endpoint": "10.0.0.1:5555",
            "agent_name": "agent",
            "worker_grpc_endpoint": "10.0.0.1:6555",
            "accelerator": "cuda",
            "status": 2,
            "node_rank": 1,
            "artifact_id": "ab" * 32,
        },
        "identity_kept": True,
        "absent_found": False,
        "unknown_updated": False,
        "marked_stale": True,
        "ready_after_stale": [],
    }


def test_they_fetch_and_install_from_our_publisher(
    tmp_path: Path, env: dict[str, str], peer: Peer, server: Service, case: Case
) -> None:
    warm, cold = case.write(tmp_path / "warm"), case.roots(tmp_path / "cold")
    arguments = [*case.cli_arguments(warm), "--host", "127.0.0.1", "--port", "0"]
    with serving("publish", *arguments, env=env, logs=tmp_path) as publisher:
        (published,) = publisher.ready["published"]
        answer = peer.run("peer_fetch.py", case.peer_parameters(server, cold))
        assert publisher.stop() == 0
    assert answer["artifact_id"] == published["artifact_id"]
    assert answer["chunks"] >= 6
    assert_installed(case, written_for=warm, at=cold)


def test_we_fetch_and_install_from_their_publisher(
    tmp_path: Path, env: dict[str, str], peer: Peer, server: Service, case: Case
) -> None:
    warm, cold = case.write(tmp_path / "warm"), case.roots(tmp_path / "cold")
    with peer.serving("peer_publish.py", case.peer_parameters(server, warm)) as published:
        arguments = [*case.cli_arguments(cold), "--wait", "60s", "--format", "json"]
        done = run_cli("fetch-and-install", *arguments, env=env)
        assert done.returncode == 0, done.stderr
    (installed,) = json.loads(done.stdout)["installed"]
    assert installed["source"]["artifact_id"] == published["artifact_id"]
    assert installed["source"]["mx_source_id"] == published["mx_source_id"]
    assert published["chunks"] >= 6
    assert_installed(case, written_for=cold, at=cold)  # Triton's groups name their new root


def test_our_publisher_without_nixl_says_why_it_does_not_serve_targets_of_the_reference(
    tmp_path: Path, env: dict[str, str], peer: Peer, server: Service
) -> None:
    case = CASES[0]
    warm, cold = case.write(tmp_path / "warm"), case.roots(tmp_path / "cold")
    arguments = [*case.cli_arguments(warm), "--host", "127.0.0.1", "--port", "0"]
    env = {**env, "MX_TRANSPORT": "auto", "MX_WORKER_STREAM_PORT": "0"}
    with serving("publish", *arguments, env=env, logs=tmp_path) as publisher:
        with pytest.raises(AssertionError) as raised:
            peer.run("peer_fetch.py", case.peer_parameters(server, cold))
        assert publisher.stop() == 0
    assert "FAILED_PRECONDITION" in str(raised.value)
    assert "start the source with MX_TRANSPORT=nixl" in str(raised.value)


def test_our_target_without_nixl_says_why_it_does_not_read_from_the_reference(
    tmp_path: Path, env: dict[str, str], peer: Peer, server: Service
) -> None:
    case = CASES[0]
    warm, cold = case.write(tmp_path / "warm"), case.roots(tmp_path / "cold")
    with peer.serving("peer_publish.py", case.peer_parameters(server, warm)):
        arguments = [*case.cli_arguments(cold), "--wait", "20s", "--format", "json"]
        done = run_cli("fetch-and-install", *arguments, env={**env, "MX_TRANSPORT": "auto"})
    error = last_object(done.stderr)
    assert (done.returncode, error["exit_code"]) == (15, 15)
    assert "NIXL" in error["message"]
    assert "MX_TRANSPORT=nixl" in error["hint"]
    assert not any(root.exists() for root in cold.values())
