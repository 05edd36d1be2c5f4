"""A cache is packed while another user puts links in it: nothing from outside of it is shipped."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.bundle import read_entry, tree
from mx_artifacts.bundle.packed import PackReport
from mx_artifacts.bundle.rules import PackRules, first_parts
from mx_artifacts.errors import BundleError, UnsafePathError
from tests.support.compiled import WAYS, done
from tests.support.packing import pack_to_file
from tests.support.stranger import UID, give, stranger

RULES = PackRules(entry_of=first_parts(1))
SECRET = b"of somebody else"


@pytest.fixture(name="way", params=WAYS, autouse=True)
def _way(request: pytest.FixtureRequest) -> Iterator[str]:
    with done(request.param):
        yield request.param


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    """Return a cache with three entries, old enough to be packed, and a directory beside it."""
    for place, content in (("root", b"a compiler's"), ("outside", SECRET)):
        for entry in ("k0", "k1", "k2") if place == "root" else ("",):
            inner = tmp_path / place / entry / "deep"
            inner.mkdir(parents=True)
            for name in ("a.so", "b.json"):
                (inner / name).write_bytes(content)
                os.utime(inner / name, (1, 1))
    large = b"x" * (2 << 20)
    (tmp_path / "root/k1/deep/large").write_bytes(large)
    (tmp_path / "outside/deep/large").write_bytes(SECRET.ljust(len(large), b"."))
    return tmp_path / "root"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take young files, too; and files of a megabyte for large ones."""
    monkeypatch.setattr("mx_artifacts.bundle.pack.MIN_AGE_SECONDS", 0.0)
    monkeypatch.setattr("mx_artifacts.bundle.read_entry._READ_BYTES", 1 << 20)


def packed(root: Path, tmp_path: Path) -> PackReport:
    """Pack; see that nothing is in the bundle but what the root has."""
    report = pack_to_file(root, tmp_path / "bundle.tar", RULES)
    assert SECRET not in (tmp_path / "bundle.tar").read_bytes()
    with tarfile.open(tmp_path / "bundle.tar") as bundle:
        names = {member.name for member in bundle if member.isfile()}
    assert {name.partition("/")[0] for name in names} <= {"k0", "k1", "k2"}
    return report


def before(function: Callable[..., Any], swap: Callable[[], None], call: int) -> Callable[..., Any]:
    """Return `function`, before whose `call`th call something happens."""
    left = [call]

    def wrapped(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            swap()
        return function(*arguments)

    return wrapped


@pytest.mark.parametrize("what", ["k1", "k1/deep"])
@pytest.mark.parametrize(
    ("module", "name", "call"),
    [
        (tree, "list_directories", 2),
        (tree, "list_directories", 3),
        (read_entry, "read_files", 1),
        (read_entry, "_read_large", 1),
        (read_entry, "stamp_columns", 1),
    ],
)
def test_a_directory_that_a_link_takes_the_place_of_leaves_its_entry_out(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    module: Any,
    name: str,
    call: int,
) -> None:
    target = tmp_path / "outside" / "deep" if what == "k1/deep" else tmp_path / "outside"

    def swap() -> None:
        (root / what).rename(tmp_path / "away")
        (root / what).symlink_to(target)

    monkeypatch.setattr(module, name, before(getattr(module, name), swap, call))
    report = packed(root, tmp_path)
    assert [skip.path for skip in report.skipped] in (["k1"], ["k1/deep"])
    assert not any(path.startswith("k1/") for path in report.paths)
    assert {"k0/deep/a.so", "k2/deep/b.json"} <= set(report.paths)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can let another user work")
@pytest.mark.parametrize("uid", [UID, None])
def test_a_race_ships_nothing_from_outside(root: Path, tmp_path: Path, uid: int | None) -> None:
    (tmp_path / "work").mkdir()
    root.rename(tmp_path / "work/root")
    root = tmp_path / "work/root"
    (tmp_path / "outside").chmod(0o700)
    (tmp_path / "work/link").symlink_to(tmp_path / "outside/deep")
    fields: dict[str, Any] = {"swap": [root / "k1/deep", tmp_path / "work/link"]}
    if uid is not None:
        give(tmp_path / "work")
        fields["uid"] = uid
    left_out = whole = 0
    with stranger(**fields):
        for _ in range(30):
            report = packed(root, tmp_path)
            # Of an entry that goes in, everything does, or only the link's place is empty.
            files = [path for path in report.paths if path.startswith("k1/deep/")]
            assert len(files) in (0, 3)
            whole += len(files) == 3
            left_out += any(skip.path.startswith("k1") for skip in report.skipped)
    assert whole + left_out == 30


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can let another user work")
def test_a_race_for_the_root_itself_ships_nothing_from_outside(root: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "real").mkdir(parents=True)
    root.rename(home / "real/root")
    (tmp_path / "outside/root").mkdir()
    (tmp_path / "outside/deep").rename(tmp_path / "outside/root/k1")
    (home / "link").symlink_to(tmp_path / "outside")
    give(home)
    packs = 0
    with stranger(uid=UID, swap=[home / "real", home / "link"]):
        for _ in range(60):
            with suppress(UnsafePathError):
                assert packed(home / "real/root", tmp_path).file_count == 7
                packs += 1
    assert packs


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files that it may give away")
def test_another_name_of_a_file_of_roots_is_not_shipped(root: Path, tmp_path: Path) -> None:
    """Where fs.protected_hardlinks is 0 a stranger may make such names."""
    give(root)
    (root / "k0/deep/c").hardlink_to(tmp_path / "outside/deep/a.so")
    (root / "k2/deep/c").hardlink_to(root / "k2/deep/a.so")  # theirs
    (root / "k1/deep/large").unlink()
    (root / "k1/deep/large").hardlink_to(tmp_path / "outside/deep/large")
    report = packed(root, tmp_path)
    reasons = {skip.path: skip.reason for skip in report.skipped}
    assert reasons.keys() == {"k0", "k1"}
    assert "not the owner of the cache root" in reasons["k0"]


def test_files_without_an_end_are_not_read(root: Path, tmp_path: Path) -> None:
    (root / "k0/deep/zero").symlink_to("/dev/zero")
    os.mkfifo(root / "k0/deep/fifo")
    report = packed(root, tmp_path)
    reasons = {skip.path: skip.reason for skip in report.skipped}
    assert reasons == {
        "k0/deep/fifo": "neither a file nor a directory",
        "k0/deep/zero": "link out of the cache root",
    }


@pytest.mark.parametrize("call", [1, 2])
def test_a_pipe_in_place_of_a_file_that_was_listed_does_not_hang(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    def swap() -> None:
        for name in ("a.so", "large"):
            (root / "k1/deep" / name).unlink()
            os.mkfifo(root / "k1/deep" / name)

    name = "read_files" if call == 1 else "_read_large"
    monkeypatch.setattr(read_entry, name, before(getattr(read_entry, name), swap, 1))
    report = packed(root, tmp_path)
    assert {"k0/deep/a.so", "k2/deep/b.json"} <= set(report.paths)
    assert "k1/deep/a.so" not in report.paths


SECRETS = (".env", ".env.local", ".ssh/id_rsa", ".netrc", ".git/config", "k1/server.pem", "token")


def test_secrets_are_left_out_and_said(root: Path, tmp_path: Path) -> None:
    for path in SECRETS:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(SECRET)
        os.utime(root / path, (1, 1))
    report = packed(root, tmp_path)
    reasons = {skip.path: skip.reason for skip in report.skipped}
    assert reasons.keys() == {
        ".env",
        ".env.local",
        ".ssh",
        ".netrc",
        ".git",
        "k1/server.pem",
        "token",
    }
    assert all("because it may hold a secret" in reason for reason in reasons.values())
    assert report.file_count == 7  # the entry that holds one is shipped without it


def test_a_root_that_is_nothing_but_secrets_says_so(tmp_path: Path) -> None:
    (tmp_path / "root/.ssh").mkdir(parents=True)
    (tmp_path / "root/.ssh/id_rsa").write_bytes(SECRET)
    with pytest.raises(BundleError, match="may hold a secret"):
        pack_to_file(tmp_path / "root", tmp_path / "b.tar", RULES)
