"""A target whose root holds an old cache: what will not be used is named, and nothing done."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.support.install_cases import picture
from tests.support.kind_trees import KEY, KIND_TREES, OTHER_KEY, make_tree
from tests.support.nodes import Cluster
from tests.support.processes import run_cli, serving

STATED = ("cuda_version=13.0", "triton_version=3", "triton_key=k", "gpu_arch=sm90")
WORDS = (
    *("--kind", "triton", "--framework", "vllm"),
    *(word for pair in STATED for word in ("--identity", pair)),
)


def fetch(cluster: Cluster, root: Path, *args: str, format: str = "json") -> tuple[int, str, str]:
    places: tuple[str, ...] = ("--model", cluster.model, "--root", str(root))
    places += ("--bundle-root", str(cluster.bundle_root), "--format", format)
    done = run_cli("fetch-and-install", *WORDS, *places, *args, env=cluster.env)
    return done.returncode, done.stdout, done.stderr


def root_of(stdout: str) -> Any:
    (root,) = json.loads(stdout)["installed"][0]["roots"]
    return root


def warning_of(stderr: str) -> str:
    objects = [json.loads(line) for line in stderr.splitlines() if line.startswith("{")]
    return " ".join(each["message"] for each in objects if each["type"] == "warning")


def test_an_old_cache_in_the_root(cluster: Cluster, tmp_path: Path) -> None:
    warm = make_tree(tmp_path / "warm", KIND_TREES["triton"])
    args = ("--model", cluster.model, "--root", str(warm), "--bundle-root", str(tmp_path / "b"))
    with serving("publish", *WORDS, *args, env=cluster.env, logs=tmp_path):
        # Part of it is a raw copy that names another root, the rest is as it should be.
        part = shutil.copytree(warm, tmp_path / "part")
        before = picture(part)
        code, out, err = fetch(cluster, part)
        assert code == 0
        assert root_of(out)["unusable"].keys() == {KEY}
        assert root_of(out)["same"] == [OTHER_KEY]
        assert f"for example {KEY}: __grp__block.json points at /made/here/" in warning_of(err)
        assert "use --replace" in warning_of(err)

        # Again: it is told once more, though nothing is transferred.
        code, out, err = fetch(cluster, part)
        assert (code, json.loads(out)["installed"][0]["total_bytes"]) == (0, 0)
        assert root_of(out)["unusable"].keys() == {KEY}
        assert warning_of(err)
        code, out, err = fetch(cluster, part, format="human")
        assert "everything was installed already, but 1 entry cannot be used" in out
        assert f"kept {KEY}, but it cannot be used: __grp__block.json points at" in out
        assert "warning: triton: 1 of 2 kept entries" in err
        code, out, _ = fetch(cluster, part, "--dry-run")
        (planned,) = json.loads(out)["planned"]
        assert (code, planned["already_installed"]) == (0, True)
        assert planned["unusable"][str(part)].keys() == {KEY}
        assert picture(part) == before

        # None of it will be used: that is a failure, of which all is told.
        (spoiled := tmp_path / "all").mkdir()
        shutil.copytree(warm / KEY, spoiled / KEY)
        shutil.copytree(warm / OTHER_KEY, spoiled / OTHER_KEY)
        next((spoiled / OTHER_KEY).iterdir()).write_bytes(b"")
        code, out, _ = fetch(cluster, spoiled, "--dry-run")
        (planned,) = json.loads(out)["planned"]
        assert planned["existing"] == {str(spoiled): 2}
        _, out, _ = fetch(cluster, spoiled, "--dry-run", format="human")
        assert "has 2 entries; those that are also in the artifact would be kept" in out
        code, out, err = fetch(cluster, spoiled)
        error = json.loads(err.splitlines()[-1])
        assert (code, error["type"]) == (3, "NotUsedError")
        assert "--replace" in error["hint"]
        assert root_of(out)["unusable"].keys() == {KEY, OTHER_KEY}
        # Nor of these, which the installer does not look through.
        (linked := tmp_path / "linked").mkdir()
        (linked / KEY).symlink_to(warm / KEY)
        (linked / OTHER_KEY).symlink_to(tmp_path / "all" / "empty")
        code, out, err = fetch(cluster, linked, format="human")
        assert (code, "2 kept (2 not usable)" in out) == (3, True)
        assert "symbolic link" in err

        code, out, _ = fetch(cluster, spoiled, "--replace")
        (spoiled / KEY / "block.json").write_text('{"changed": 1}')
        _, told, _ = fetch(cluster, spoiled, format="human")
        assert "2 kept (1 identical to the fetched, 1 not verified)" in told
        assert "it was changed since it was installed (receipt " in told
        assert (code, root_of(out)["unusable"]) == (0, {})
        assert sorted(root_of(out)["installed"]) == sorted([KEY, OTHER_KEY])
