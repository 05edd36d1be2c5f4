"""Proof of use and undo through the command line: pain 1.7 (a poisoned cache) and 7.14 (doctor)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import runner
from tests.support.install_cases import contents, fill, mounted
from tests.support.nodes import KIND, WORDS, Cluster, warm_cache
from tests.support.processes import Service, run_cli

MINE = {"1.0/sm90/kernels/mine/executable.so": b"compiled here"}


class Node:
    """The target: runs verbs on its root."""

    def __init__(self, cluster: Cluster, root: Path) -> None:
        self.cluster, self.root = cluster, root

    def run(self, *args: str, **env: str) -> tuple[int, Any, Any]:
        """Return the exit code, the result if any, and the error if any."""
        done = run_cli(*args, "--format", "json", env={**self.cluster.env, **env})
        error = json.loads(done.stderr.splitlines()[-1]) if done.returncode else None
        return done.returncode, json.loads(done.stdout or "null"), error

    def of_kind(self, verb: str, *args: str) -> tuple[int, Any, Any]:
        return self.run(verb, "--kind", KIND, "--root", str(self.root), *args)


@pytest.fixture(name="node")
def _node(cluster: Cluster, tmp_path: Path) -> Node:
    return Node(cluster, tmp_path / "cold")


def artifact_id(source: Service) -> str:
    (published,) = source.ready["published"]
    return str(published["artifact_id"])


def test_a_poisoned_cache_is_removed_exactly_and_does_not_come_back(
    node: Node, cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    fill(node.root, MINE)
    with cluster.source(cache) as source:
        bad = artifact_id(source)
        code, done = cluster.fetch(node.root)
        assert code == 0, done
        receipt = done["installed"][0]["receipt"]
        assert node.of_kind("verify")[0] == 0
        code, used, error = node.run("used", receipt)
        assert (code, error["type"]) == (3, "NotUsedError")
        assert used["used"][0]["verdict"] in ("unused", "unknown")  # by how /tmp is mounted
        assert error["hint"]

        # The engine reads it, crashes, and the operator puts it away.
        assert set(contents(cache)) < set(contents(node.root))
        where = ("--root", f"{KIND}={node.root}")
        code, done, _ = node.run("quarantine", bad, "--reason", "it crashed the engine", *where)
        assert code == 0
        assert len(done["uninstalled"][0]["roots"][0]["removed"]) == 2
        assert contents(node.root) == MINE

        code, error = cluster.fetch(node.root)
        assert (code, error["type"]) == (13, "IncompatibleSourceError")
        assert "because it crashed the engine" in error["message"]
        assert contents(node.root) == MINE
        args = ("why", *WORDS, "--model", cluster.model, "--format", "json")
        explained = run_cli(*args, env=cluster.env)
        why = json.loads(explained.stdout)
        assert (explained.returncode, why["would_be_used"]) == (13, [])
        assert "because it crashed the engine" in why["candidates"][0]["refusal"]

        with cluster.source(warm_cache(tmp_path / "other")) as other:
            good = artifact_id(other)
            code, done = cluster.fetch(node.root)
        assert (code, done["installed"][0]["source"]["artifact_id"]) == (0, good)

        code, done, _ = node.of_kind("uninstall")
        assert (code, contents(node.root)) == (0, MINE)
        code, listed, _ = node.run("quarantine", "--list")
        assert [entry["artifact_id"] for entry in listed["quarantined"]] == [bad]
        assert node.run("quarantine", bad, "--remove")[1]["removed"]
        assert cluster.fetch(node.root)[0] == 0


def test_verify_and_uninstall_tell_what_changed(node: Node, cluster: Cluster, cache: Path) -> None:
    with cluster.source(cache):
        assert cluster.fetch(node.root)[0] == 0
    changed = next(node.root.rglob("best_config.json"))
    changed.write_text("{}")
    code, report, error = node.of_kind("verify")
    assert (code, error["type"]) == (12, "InstallVerificationError")
    states = [e["state"] for e in report["receipts"][0]["roots"][0]["entries"]]
    assert sorted(states) == ["changed", "intact"]
    code, used, _ = node.of_kind("used")
    assert (code, used["used"][0]["verdict"]) == (3, "recompiled")
    code, _, error = node.of_kind("uninstall")
    assert (code, error["type"]) == (3, "EntriesKeptError")
    assert changed.exists()
    assert node.of_kind("uninstall", "--force")[0] == 0
    assert not node.root.exists()
    code, _, error = node.of_kind("verify")
    assert (code, error["type"]) == (2, "ConfigurationError")
    assert str(node.root) in error["message"]


def test_a_receipt_and_a_kind_at_once_or_neither_make_no_sense(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = runner(capsys)
    for verb in ("verify", "used", "uninstall"):
        assert run(verb).code == 2
        assert run(verb, "--kind", KIND, "/a/receipt.json").code == 2
    assert run("quarantine").code == 2
    assert run("quarantine", "ab" * 32, "--list").code == 2


# --- doctor ---------------------------------------------------------------------------------------


def levels(report: Any) -> dict[str, str]:
    return {check["name"]: check["level"] for check in report["checks"]}


def test_a_node_in_order(node: Node) -> None:
    code, report, error = node.of_kind("doctor")
    assert code == 0, error
    found = levels(report)
    assert {"tilelang root", "user", "memlock", "clock", "transport", "central server"} <= set(
        found
    )
    assert "fail" not in found.values()
    assert not node.root.exists()


def test_each_missing_prerequisite_has_its_line_and_its_code(node: Node) -> None:
    seen = {}
    for fault, kind, env in (
        ("server", KIND, {"MX_SERVER_ADDRESS": "127.0.0.1:1"}),
        ("nixl", KIND, {"MX_TRANSPORT": "nixl", "UCX_TLS": "X"}),
        ("transport", KIND, {"MX_TRANSPORT": "inproc"}),
        ("ninja", "tvm_ffi", {"PATH": "/none"}),
    ):
        code, report, error = node.run("doctor", "--kind", kind, **env)
        failed = [check for check in report["checks"] if check["level"] == "fail"]
        assert error["type"] == "NodeUnfitError"
        assert error["hint"] == failed[0]["next_step"]
        assert all(check["next_step"] for check in failed)
        seen[fault] = (code, failed[0]["name"])
    assert seen == {
        "server": (14, "central server"),
        "nixl": (15, "nixl"),
        "transport": (2, "transport"),
        "ninja": (13, "ninja"),
    }


@pytest.mark.parametrize(("option", "code"), [("ro", 2), ("noexec", 13)])
def test_a_root_on_a_mount_that_will_not_do(node: Node, option: str, code: int) -> None:
    if shutil.which("mount") is None:
        pytest.skip("no mount here")
    try:
        with mounted(node.root, "-t", "tmpfs", "-o", f"{option},size=2g", "none"):
            ended, report, _ = node.of_kind("doctor")
    except PermissionError as error:
        pytest.skip(str(error))
    assert ended == code
    assert levels(report)["tilelang root"] == "fail"
