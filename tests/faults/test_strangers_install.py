"""Root installs into a cache of another user, who tries to lead it elsewhere with its rights."""

from __future__ import annotations

import itertools
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from mx_artifacts.bundle.rules import first_parts
from mx_artifacts.errors import (
    ConfigurationError,
    InstallError,
    MxArtifactsError,
    RollbackFailedError,
    UnsafePathError,
)
from mx_artifacts.install.base import RootInstall
from mx_artifacts.install.quarantine import Quarantine
from mx_artifacts.install.receipts.believed import check_roots
from mx_artifacts.install.receipts.receipt import load_receipt
from mx_artifacts.install.uninstall import uninstall_artifact
from mx_artifacts.install.usage import usage_of
from mx_artifacts.kinds.base import FileContent, FixupReport
from mx_artifacts.observability.events import Event
from tests.support.compiled import WAYS, done
from tests.support.install_cases import (
    NEW,
    OLD,
    contents,
    fill,
    install,
    install_roots,
    make_bundle,
    workspace_of,
)
from tests.support.stranger import UID, give, stranger

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be led by another user")
REFUSALS = (MxArtifactsError, OSError)


@pytest.fixture(name="way", params=WAYS, autouse=True)
def _way(request: pytest.FixtureRequest) -> Iterator[str]:
    with done(request.param):
        yield request.param


@pytest.fixture(name="home")
def _home(tmp_path: Path) -> Path:
    """Return the stranger's own directory."""
    home = tmp_path / "home"
    home.mkdir()
    give(home)
    return home


@pytest.fixture(name="victim")
def _victim(tmp_path: Path) -> Path:
    """Return a directory of root's, into which nobody else may look."""
    victim = fill(tmp_path / "victim", {"secret": b"precious", "k1/kernel.so": b"of root's"})
    victim.chmod(0o700)
    return victim


@pytest.fixture(name="bundle")
def _bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "artifact.tar", NEW)


def state_of(directory: Path) -> dict[str, tuple[object, ...]]:
    """Return owners, modes, times of change and contents of all there is."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (directory, *sorted(directory.rglob("*"))):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        key = str(path.relative_to(directory))
        found[key] = (status.st_uid, status.st_gid, status.st_mode, status.st_ctime_ns, content)
    return found


def workspace_for(root: Path) -> Path:
    """Make the workspace of `root` as the stranger could, before anybody installs."""
    workspace = root.with_name(f".mx-artifacts.{root.name}")
    for name in ("receipts", "staging", "old"):
        (workspace / name).mkdir(parents=True)
    give(workspace)
    return workspace


# --- links at names of ours -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [".tmp", "lock", "journal.json", "receipts/.tmp"])
def test_a_link_at_a_name_of_ours_is_not_written_through(
    home: Path, victim: Path, bundle: Path, name: str
) -> None:
    root = fill(home / "cache", {"mine/x": b"1"})
    give(root)
    workspace = workspace_for(root)
    (workspace / name).symlink_to(victim / "secret")
    before = state_of(victim)
    with suppress(*REFUSALS):
        install(root, bundle)
    assert state_of(victim) == before


@pytest.mark.parametrize("name", ["lock", ".tmp"])
def test_a_file_of_another_name_is_not_written(
    home: Path, victim: Path, bundle: Path, name: str
) -> None:
    """Where fs.protected_hardlinks is 0 a stranger may make such names."""
    root = fill(home / "cache", {})
    give(root)
    (workspace_for(root) / name).hardlink_to(victim / "secret")
    before = (victim / "secret").read_bytes()
    with suppress(*REFUSALS):
        install(root, bundle)
    assert (victim / "secret").read_bytes() == before
    if name == "lock":
        with pytest.raises(UnsafePathError, match="is not a lock file of mx-artifacts"):
            install(root, bundle)


@pytest.mark.parametrize("name", ["receipts", "staging", "old", ""])
def test_a_link_in_place_of_a_directory_of_ours_is_refused(
    home: Path, victim: Path, bundle: Path, name: str
) -> None:
    root = fill(home / "cache", {})
    give(root)
    workspace = workspace_for(root)
    place = workspace / name if name else workspace
    place.rename(home / "away")
    place.symlink_to(victim)
    before = state_of(victim)
    with pytest.raises(UnsafePathError) if name else suppress(UnsafePathError):
        install(root, bundle)
    assert state_of(victim) == before


def test_a_quarantine_of_a_stranger_is_not_written_through(home: Path, victim: Path) -> None:
    before = state_of(victim)
    for name in (".tmp", f"{'ba' * 32}.json", "lock"):
        directory = fill(home / f"state{name[:4]}" / "quarantine", {})
        (directory / name).symlink_to(victim / "secret")
        give(directory.parent)
        with suppress(ConfigurationError, UnsafePathError):
            Quarantine(directory.parent).add("ba" * 32, "crashed")
        assert state_of(victim) == before


# --- swapped while we work ------------------------------------------------------------------------

STEPS = (
    "install.locked",
    "install.recovered",
    "install.staged",
    "install.journaled",
    "install.moved",
    "fixup",
)


def swapping(
    step: str, swap: Callable[[], None]
) -> tuple[Callable[[Event], None], Callable[[str], None]]:
    """Return what does it once at a step, as a sink of events and for a fix-up."""
    left = [swap]

    def at(name: str) -> None:
        if name == step and left:
            left.pop()()

    return lambda event: at(event.name), at


@pytest.mark.parametrize("what", ["staged", "staging", "workspace", "root"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("exists", ["absent", "empty", "filled"])
def test_paths_swapped_at_any_step_lead_to_no_other_place(
    home: Path, victim: Path, bundle: Path, step: str, what: str, exists: str
) -> None:
    root = home / "cache"
    if exists != "absent":
        fill(root, OLD if exists == "filled" else {})
        give(root)
    workspace = workspace_for(root)

    def swap() -> None:
        staging = workspace / "staging"
        staged = [*staging.iterdir()]
        places = {"staged": staged, "staging": [staging], "workspace": [workspace], "root": [root]}
        for place in places[what]:
            with suppress(FileNotFoundError):
                place.rename(home / f"away-{place.name}")
            place.symlink_to(victim)
            os.lchown(place, UID, UID)

    sink, at = swapping(step, swap)

    def fixup(staged: Path, root: Path) -> FixupReport:
        at("fixup")
        (staged / "k1/kernel.so").write_bytes(b"rewritten")
        return FixupReport(1, touched={"k1/kernel.so": FileContent.of(b"rewritten")})

    before = state_of(victim)
    parts = [(RootInstall("", root, first_parts(1), (fixup,)), bundle)]
    with suppress(*REFUSALS):
        install_roots(parts, replace=True, events=sink, lock_timeout_seconds=1.0)
    assert state_of(victim) == before
    assert victim.stat().st_uid == 0


def test_a_race_for_what_is_staged_gains_nothing(home: Path, victim: Path, bundle: Path) -> None:
    root = home / "cache"
    staging = workspace_for(root) / "staging"
    before = state_of(victim)
    with stranger(uid=UID, replace={"directory": staging, "link": victim}):
        for number in itertools.count():
            fill(root, {}) if number % 2 else None
            with suppress(*REFUSALS):
                install(root, bundle, lock_timeout_seconds=1.0)
            assert state_of(victim) == before
            if number == 25:
                break
            with suppress(FileNotFoundError):
                root.rename(home / f"old{number}")


def test_a_race_for_the_root_and_its_parents_gains_nothing(
    home: Path, victim: Path, bundle: Path
) -> None:
    """What is above the root is a link to a directory of root's half of the time."""
    fill(home / "real" / "cache", OLD)
    (home / "link").symlink_to(victim)
    give(home)
    before = state_of(victim)
    done_right = 0
    with stranger(uid=UID, swap=[home / "real", home / "link"]):
        for _ in range(40):
            with suppress(*REFUSALS):
                install(home / "real" / "cache", bundle, replace=True, lock_timeout_seconds=1.0)
                done_right += 1
            assert state_of(victim) == before
    assert done_right


def test_a_process_of_the_same_user_that_swaps_staged_files_leads_to_an_error_or_a_right_install(
    tmp_path: Path, victim: Path, bundle: Path
) -> None:
    """It could do all of it by itself; but an install says what is wrong, or is right."""
    root = tmp_path / "cache"
    (tmp_path / ".mx-artifacts.cache/staging").mkdir(parents=True)
    staging = tmp_path / ".mx-artifacts.cache/staging"
    with stranger(replace={"directory": staging, "link": victim}):
        for number in range(15):
            with suppress(InstallError, UnsafePathError):
                install(root, bundle, lock_timeout_seconds=1.0)
                assert contents(root) == NEW
            with suppress(FileNotFoundError):
                root.rename(tmp_path / f"old{number}")


def test_other_users_cannot_read_staged_files(home: Path, bundle: Path) -> None:
    """Although it has its owner already: only where nobody can reach it may it be given away."""
    root = home / "cache"
    seen: list[tuple[int, int]] = []

    def look(event: Event) -> None:
        if event.name == "install.staged":
            (place,) = (workspace_of(root) / "staging").iterdir()
            found = place.stat()
            seen.append((found.st_uid, stat.S_IMODE(found.st_mode)))
            inner = (place / "tree" / "k1" / "kernel.so").stat()
            seen.append((inner.st_uid, stat.S_IMODE(inner.st_mode)))

    install(root, bundle, events=look)
    assert seen == [(0, 0o700), (UID, 0o644)]
    assert {path.stat().st_uid for path in (root, *root.rglob("*"))} == {UID}


# --- links on the way to the root -----------------------------------------------------------------


def test_a_strangers_link_may_lead_to_what_is_theirs_only(
    home: Path, victim: Path, bundle: Path, tmp_path: Path
) -> None:
    before = state_of(victim)
    for number, target in enumerate((victim, victim / "new", victim / "k1")):
        link = home / f"link{number}"
        link.symlink_to(target)
        os.lchown(link, UID, UID)
        with pytest.raises(UnsafePathError, match=f"link of user {UID}"):
            install(link, bundle)
        with pytest.raises(UnsafePathError, match=f"link of user {UID}"):
            install(link / "further" / "down", bundle)
    assert state_of(victim) == before
    theirs = fill(tmp_path / "data of theirs", {})
    give(theirs)
    link = home / "cache"
    link.symlink_to(theirs)
    os.lchown(link, UID, UID)
    report = install(link, bundle)
    assert contents(theirs) == NEW
    # They chose the root, and not what is around it.
    assert report.receipt_path.is_relative_to(theirs)


def test_a_link_of_roots_is_followed(home: Path, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home)
    install(tmp_path / "link" / "cache", bundle)
    assert contents(home / "cache") == NEW


# --- journals -------------------------------------------------------------------------------------


def journal(**changes: object) -> str:
    receipt = "/nowhere/.mx-artifacts/receipts/20200101T000000Z-abababababab.json"
    whole = {"staged": "1-x", "receipt": receipt, "moves": [], "new_directories": []}
    return json.dumps({**whole, "empty_root": None, **changes})


def test_a_forged_journal_makes_no_directory_of_another_owner(home: Path, bundle: Path) -> None:
    root = home / "cache"
    workspace = workspace_for(root)
    empty = {"mode": 0o6777, "uid": 0, "gid": 0}
    moves = [{"entry": "", "inode": 1, "replaces": False}]
    (workspace / "journal.json").write_text(journal(moves=moves, empty_root=empty))
    give(workspace)
    seen: list[tuple[int, int]] = []

    def look(event: Event) -> None:
        if event.name == "install.recovered" and not seen:
            seen.append((root.stat().st_uid, stat.S_IMODE(root.stat().st_mode)))

    install(root, bundle, events=look)
    assert seen == [(UID, 0o755)]


@pytest.mark.parametrize(
    "receipt", ["/etc/shadow", "relative", "/x/receipts/a.json", "/.mx-artifacts/receipts/../x"]
)
def test_a_forged_journal_asks_for_no_other_files(home: Path, bundle: Path, receipt: str) -> None:
    root = home / "cache"
    workspace = workspace_for(root)
    (workspace / "journal.json").write_text(journal(receipt=receipt))
    give(workspace)
    with pytest.raises(RollbackFailedError, match="not the path of a receipt"):
        install(root, bundle)


def test_a_forged_journal_moves_nothing_out_of_another_directory(
    home: Path, victim: Path, bundle: Path
) -> None:
    root = fill(home / "cache", {"mine": b"1"})
    (root / "link").symlink_to(victim)
    give(root)
    workspace = workspace_for(root)
    moves = [
        {"entry": entry, "inode": (victim / path).stat().st_ino, "replaces": False}
        for entry, path in (("link/secret", "secret"), ("link/k1", "k1"))
    ]
    (workspace / "journal.json").write_text(journal(moves=moves, new_directories=["link/k1"]))
    give(workspace)
    before = state_of(victim)
    with suppress(*REFUSALS):
        install(root, bundle)
    assert state_of(victim) == before


# --- receipts -------------------------------------------------------------------------------------


def edited(receipt_path: Path, victim: Path) -> Path:
    """Add a root to a receipt: a directory of root's, with the files that it has."""
    document = json.loads(receipt_path.read_text())
    found = (victim / "k1/kernel.so").stat()
    file = ["k1/kernel.so", found.st_size, 0o644, found.st_mtime_ns, "f1894ccc", None]
    file[4] = _checksum((victim / "k1/kernel.so").read_bytes())
    further = {
        **document["roots"][0],
        "name": "more",
        "root": str(victim),
        "installed": [{"entry": "k1", "files": [file]}],
        "made": ["", "k1"],
    }
    document["roots"].append(further)
    receipt_path.write_text(json.dumps(document))
    os.chown(receipt_path, UID, UID)
    return receipt_path


def _checksum(content: bytes) -> str:
    from mx_artifacts.core.digest import crc32c, crc32c_hex

    return crc32c_hex(crc32c(content))


def test_an_edited_receipt_removes_nothing_elsewhere(
    home: Path, victim: Path, bundle: Path
) -> None:
    root = home / "cache"
    receipt = edited(install(root, bundle).receipt_path, victim)
    before = state_of(victim)
    for work in (
        lambda: uninstall_artifact(receipt, lock_timeout_seconds=1.0),
        lambda: usage_of(receipt),
        lambda: check_roots(receipt, load_receipt(receipt)),
    ):
        with pytest.raises(ConfigurationError, match=str(victim)) as caught:
            work()
        assert "--root" in caught.value.hint()
    assert state_of(victim) == before
    assert contents(root) == NEW
    # Unless whoever runs it names that root, too.
    uninstall_artifact(receipt, roots=[root, victim], lock_timeout_seconds=1.0)
    assert not root.exists()
    assert contents(victim) == {"secret": b"precious"}


def test_an_edited_receipt_is_believed_by_force(home: Path, victim: Path, bundle: Path) -> None:
    receipt = edited(install(home / "cache", bundle).receipt_path, victim)
    uninstall_artifact(receipt, force=True, lock_timeout_seconds=1.0)
    assert contents(victim) == {"secret": b"precious"}


def test_a_root_that_was_installed_into_vouches_for_its_receipt(
    tmp_path: Path, bundle: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    roots = [
        (RootInstall("", first, first_parts(1)), bundle),
        (RootInstall("more", second, first_parts(1)), bundle),
    ]
    report = install_roots(roots)
    assert uninstall_artifact(report.receipt_path, lock_timeout_seconds=1.0).is_complete
    assert not first.exists()
    assert not second.exists()
    assert [*(tmp_path / ".mx-artifacts.second/receipts").iterdir()] == []


def test_a_stranger_cannot_vouch_for_another_root(home: Path, victim: Path, bundle: Path) -> None:
    """The workspace beside a directory of root's in a directory of theirs is theirs."""
    inner = fill(home / "of root's", {"k1/kernel.so": b"of root's"})
    receipt = edited(install(home / "cache", bundle).receipt_path, inner)
    workspace = workspace_for(inner)
    (workspace / f"receipts/{receipt.name}.voucher").write_text(str(receipt))
    give(workspace)
    with pytest.raises(ConfigurationError, match="has no record of the receipt"):
        uninstall_artifact(receipt, lock_timeout_seconds=1.0)
    assert contents(inner) == {"k1/kernel.so": b"of root's"}


def test_files_of_another_user_are_not_removed(home: Path, bundle: Path) -> None:
    """Root's own in a directory of root's: its owner could move that away, but not empty it."""
    receipt = install(home / "cache", bundle).receipt_path
    os.chown(home / "cache/k1", 0, 0)
    os.chown(home / "cache/k1/kernel.so", 0, 0)
    report = uninstall_artifact(receipt, lock_timeout_seconds=1.0)
    assert report.roots[0].kept == {"k1": "k1/kernel.so belongs to user 0 now"}
    assert set(contents(home / "cache")) == {"k1/kernel.so", "k1/kernel.json"}
    assert not report.is_complete
    assert uninstall_artifact(receipt, force=True, lock_timeout_seconds=1.0).is_complete


def test_a_race_while_uninstalling_removes_nothing_elsewhere(
    home: Path, victim: Path, bundle: Path
) -> None:
    fill(home / "link target", {})
    before = state_of(victim)
    for _ in range(12):
        with ExitStack() as stack:
            receipt = install(home / "cache", bundle).receipt_path
            swapped = home / "cache/k1"
            (home / "k1").symlink_to(victim / "k1")
            give(home)
            stack.enter_context(stranger(uid=UID, swap=[swapped, home / "k1"]))
            with suppress(*REFUSALS):
                uninstall_artifact(receipt, force=True, lock_timeout_seconds=1.0)
        assert state_of(victim) == before
        for path in (home / "k1", swapped):
            if path.is_symlink():
                path.unlink()
        for place in (home / "cache", home / "k1"):
            with suppress(FileNotFoundError):
                place.rename(home / f"gone{place.name}{os.urandom(4).hex()}")
        receipt.unlink(missing_ok=True)
