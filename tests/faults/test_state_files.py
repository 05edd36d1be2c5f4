"""Something else in place of the installer's own files: every verb says so, and none hangs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.errors import MxArtifactsError
from mx_artifacts.install.uninstall import uninstall_artifact
from tests.support.install_cases import contents, fill, workspace_of
from tests.support.nodes import KIND, Cluster
from tests.support.processes import last_object, run_cli


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 << 30)


IN_ITS_PLACE = (pipe, endless, directory, large)


def replace(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink(missing_ok=True)
    make(path)


def ends(env: dict[str, str], *args: str) -> tuple[int, Any]:
    """Return the exit code of a verb, and what it said in its error, or as its result."""
    done = run_cli(*args, "--format", "json", env=env)
    if done.returncode:
        return done.returncode, last_object(done.stderr)
    return 0, json.loads(done.stdout)


@pytest.mark.parametrize("make", IN_ITS_PLACE)
def test_each_verb_ends(
    cluster: Cluster, cache: Path, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    root, state = tmp_path / "cold", tmp_path / "state"
    env = {**cluster.env, "MX_STATE_DIR": str(state)}
    kind = ("--kind", KIND, "--root", str(root))
    with cluster.source(cache):
        code, done = cluster.fetch(root, MX_STATE_DIR=str(state))
        assert code == 0, done
        receipt = Path(done["installed"][0]["receipt"])
        workspace = workspace_of(root)
        fetch = cluster.target_args(root, "--lock-timeout", "1s")

        # The journal: nobody knows what to take back, so nothing is done.
        replace(workspace / "journal.json", make)
        for args in (fetch, ("uninstall", *kind), ("uninstall", str(receipt)), ("verify", *kind)):
            code, error = ends(env, *args)
            assert (code, error["type"]) == (1, "RollbackFailedError"), args
            assert f"{workspace}/journal.json is not a valid journal" in error["message"]
            assert str(workspace) in error["hint"]
        assert ends(env, "verify", str(receipt))[0] == 0
        assert ends(env, "used", str(receipt))[0] == 3
        _clear(workspace / "journal.json")
        assert contents(root) == contents(cache)

        # The lock.
        replace(workspace / "lock", make)
        if make is not large:  # that is a lock, too, and gets its holder's name
            for args in (fetch[:1] + fetch[1:] + ("--replace",), ("uninstall", *kind)):
                code, error = ends(env, *args)
                assert (code, error["type"]) == (12, "UnsafePathError"), args
                assert f"{workspace}/lock is not a lock file of mx-artifacts" in error["message"]
            _clear(workspace / "lock")
        assert ends(env, *fetch)[0] == 0

        # A receipt: one that is named is an error, others are passed over.
        replace(receipt, make)
        for verb in ("verify", "uninstall", "used"):
            code, error = ends(env, verb, str(receipt))
            assert (code, error["type"]) == (2, "ConfigurationError"), verb
            assert " is no receipt" in error["message"]
            code, error = ends(env, verb, *kind)
            assert (code, error["type"]) == (2, "ConfigurationError"), verb
        code, done = ends(env, *fetch)
        assert code == 0, done
        assert contents(root) == contents(cache)
        _clear(receipt)

        # The quarantine: unknown is not empty.
        quarantined = state / "quarantine" / f"{'ab' * 32}.json"
        fill(quarantined.parent, {})
        replace(quarantined, make)
        for args in (("quarantine", "--list"), fetch):
            code, error = ends(env, *args)
            assert (code, error["type"]) == (2, "ConfigurationError"), args
            assert quarantined.name in error["message"] or str(quarantined) in error["message"]
        assert ends(env, "quarantine", "ab" * 32, "--remove")[0] == (2 if make is directory else 0)
        _clear(quarantined)
        replace(quarantined.with_name("lock"), make)
        code, error = ends(env, "quarantine", "cd" * 32)
        assert code == (0 if make is large else 2), error
        _clear(quarantined.with_name("lock"))

        # A bundle to look into.
        bundle = tmp_path / "bundle.tar"
        make(bundle)
        code, error = ends(env, "inspect", str(bundle))
        assert code in (2, 12), error
        assert str(bundle) in error["message"] or "after its end" in error["message"]


def _clear(path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("make", IN_ITS_PLACE)
def test_publishing_a_root_with_such_files_ends(
    cluster: Cluster, cache: Path, make: Callable[[Path], None]
) -> None:
    workspace = fill(cache / ".mx-artifacts", {})
    for name in ("journal.json", "lock", "receipts"):
        make(workspace / name)
    if make is not large:  # that would be a file of a cache
        make(cache / "1.0/odd")
    with ExitStack() as stack:
        source = stack.enter_context(cluster.source(cache))
        (published,) = source.ready["published"]
        assert published["roots"][0]["files"] == 4


def test_a_receipt_that_was_undone_ends_the_same(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.json.uninstalled")
    with pytest.raises(MxArtifactsError, match="is no receipt"):
        uninstall_artifact(tmp_path / "x.json", lock_timeout_seconds=1.0)
