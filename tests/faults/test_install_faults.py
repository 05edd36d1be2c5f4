"""Installs that are killed, interrupted, run out of space, or meet each other."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from mx_artifacts.bundle.rules import first_parts
from mx_artifacts.errors import NoSpaceError, RollbackFailedError
from mx_artifacts.filesystem import rename
from mx_artifacts.install.base import RootInstall
from mx_artifacts.kinds.base import FixupReport
from mx_artifacts.observability.events import Event
from tests.support import install_process
from tests.support.install_cases import (
    NEW,
    OLD,
    ORIGIN,
    contents,
    fill,
    install,
    install_roots,
    leftovers,
    make_bundle,
    mounted,
    picture,
    workspace_of,
)

SCENARIOS: dict[str, tuple[Callable[[Path], object], bool]] = {
    "absent": (lambda root: None, False),
    "empty": (lambda root: fill(root, {}).chmod(0o750), False),
    "filled": (lambda root: fill(root, OLD), False),
    "replace": (lambda root: fill(root, OLD), True),
}
KILLS_BEFORE_JOURNAL, KILLS_AFTER_JOURNAL = 5, 15


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "artifact.tar", NEW)


def by_entry(files: dict[str, bytes]) -> dict[str, dict[str, bytes]]:
    entries: dict[str, dict[str, bytes]] = {}
    for name, data in files.items():
        entries.setdefault(name.split("/")[0], {})[name] = data
    return entries


def finished(before: dict[str, bytes], replace: bool) -> dict[str, bytes]:
    old, new = by_entry(before), by_entry(NEW)
    entries = {**old, **new} if replace else {**new, **old}
    return {name: data for files in entries.values() for name, data in files.items()}


# --- kill -9 ----------------------------------------------------------------------------------


@functools.cache
def kill_points(scenario: str) -> list[int]:
    """Return the steps at which to kill: a few while staging, most while entries are moved."""
    prepare, replace = SCENARIOS[scenario]
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "root")
        prepare(root)
        bundle = make_bundle(Path(directory, "b.tar"), NEW)
        status, out, err = install_process.run(root=root, bundle=bundle, replace=replace)
        assert status == 0, err
    middle, end = out["journaled_at"], out["steps"]
    return [
        *(1 + n * (middle - 1) // KILLS_BEFORE_JOURNAL for n in range(KILLS_BEFORE_JOURNAL)),
        *(middle + n * (end - middle) // KILLS_AFTER_JOURNAL for n in range(KILLS_AFTER_JOURNAL)),
    ]


@pytest.mark.parametrize("kill", range(KILLS_BEFORE_JOURNAL + KILLS_AFTER_JOURNAL))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_kill_leaves_each_entry_as_before_or_as_after(
    tmp_path: Path, bundle: Path, scenario: str, kill: int
) -> None:
    prepare, replace = SCENARIOS[scenario]
    root = tmp_path / "root"
    prepare(root)
    before = contents(root)
    after = finished(before, replace)
    kill_at = kill_points(scenario)[kill]

    status, _, err = install_process.run(root=root, bundle=bundle, replace=replace, kill_at=kill_at)
    assert status == -signal.SIGKILL, err

    found, old, new = by_entry(contents(root)), by_entry(before), by_entry(after)
    for entry in {*found, *old, *new}:
        assert found.get(entry) in (old.get(entry), new.get(entry)), entry
    if scenario in ("absent", "empty"):  # these go in as one
        assert contents(root) in (before, after)

    install(root, bundle, replace=replace)
    assert contents(root) == after
    assert leftovers(root) == []


def test_next_install_takes_back_what_was_half_done(tmp_path: Path, bundle: Path) -> None:
    root = fill(tmp_path / "root", OLD)
    before = picture(root)
    install_process.run(root=root, bundle=bundle, replace=True, kill_on="install.moved")
    assert contents(root)["k1/kernel.so"] == NEW["k1/kernel.so"]
    assert (workspace_of(root) / "journal.json").exists()
    other = make_bundle(tmp_path / "other.tar", {"other": b"1"})
    install(root, other)
    (root / "other").unlink()
    assert picture(root) == before


# --- exceptions -------------------------------------------------------------------------------


class Interrupted(BaseException):
    """What a signal handler raises, as KeyboardInterrupt is."""


def interrupt_at(step: int) -> Callable[[Event], None]:
    counter = itertools.count(1)

    def sink(event: Event) -> None:
        if next(counter) == step:
            raise Interrupted(event.name)

    return sink


@pytest.mark.parametrize("with_renameat2", [True, False])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_exception_at_any_step_takes_everything_back(
    tmp_path: Path,
    bundle: Path,
    scenario: str,
    monkeypatch: pytest.MonkeyPatch,
    with_renameat2: bool,
) -> None:
    if not with_renameat2:
        monkeypatch.setattr(rename, "_renameat2", None)
    prepare, replace = SCENARIOS[scenario]
    root = tmp_path / "root"
    prepare(root)
    before = picture(root)
    interrupted_at = []
    for step in itertools.count(1):
        try:
            install(root, bundle, replace=replace, events=interrupt_at(step))
        except Interrupted as error:
            interrupted_at.append(str(error))
        if not interrupted_at or interrupted_at[-1] == "install.receipt":
            break  # the receipt is the commit point
        assert picture(root) == before, interrupted_at
        assert leftovers(root) == []
    assert {"install.staged", "install.journaled", "install.moved"} <= set(interrupted_at)
    assert contents(root) == finished({} if scenario in ("absent", "empty") else OLD, replace)
    assert leftovers(root) == []


def test_second_root_killed_before_the_receipt_is_taken_back_with_the_first(
    tmp_path: Path, bundle: Path
) -> None:
    first, second = tmp_path / "first", fill(tmp_path / "second", OLD)
    roots = [
        (RootInstall("", first, first_parts(1)), bundle),
        (RootInstall("autotune", second, first_parts(1)), bundle),
    ]
    before = picture(second)
    moved = 0

    def sink(event: Event) -> None:
        nonlocal moved
        moved += event.name == "install.moved"
        if moved == 2:  # the first root as a whole, and one entry of the second
            moved += 1
            raise Interrupted

    with pytest.raises(Interrupted):
        install_roots(roots, artifact=ORIGIN, lock_timeout_seconds=1, events=sink)
    assert picture(first) is None
    assert picture(second) == before


def test_rollback_that_fails_says_what_is_left(
    tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = fill(tmp_path / "root", {"mine": b"1"})

    def sink(event: Event) -> None:
        if event.name == "install.moved" and event.fields()["entry"] == "k2":
            monkeypatch.setattr(os, "rename", refuse)
            raise Interrupted

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(RollbackFailedError, match="taken back") as caught:
        install(root, bundle, events=sink)
    assert str(root / "k1") in str(caught.value)
    assert str(root / "k2") in str(caught.value)
    assert str(root) in caught.value.hint()
    monkeypatch.undo()
    install(root, bundle)  # the journal is still there
    assert contents(root) == {**NEW, "mine": b"1"}


# --- space ------------------------------------------------------------------------------------


@pytest.fixture
def small_root(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "small"
    with ExitStack() as stack:
        try:
            stack.enter_context(mounted(root, "-t", "tmpfs", "-o", "size=4m,mode=755", "none"))
        except PermissionError as error:
            pytest.skip(str(error))
        yield root


def test_mount_point_gets_its_workspace_inside(small_root: Path, bundle: Path) -> None:
    fill(small_root, OLD)
    report = install(small_root, bundle, replace=True)
    assert report.receipt_path.is_relative_to(small_root)
    assert contents(small_root) == finished(OLD, replace=True)


def test_bind_mount_within_one_file_system_gets_its_workspace_inside(
    tmp_path: Path, bundle: Path
) -> None:
    source, root = fill(tmp_path / "source", OLD), tmp_path / "a root"
    with ExitStack() as stack:
        try:
            stack.enter_context(mounted(root, "--bind", str(source)))
        except PermissionError as error:
            pytest.skip(str(error))
        report = install(root, bundle, replace=True)
        assert report.receipt_path.is_relative_to(root)
        assert contents(root) == finished(OLD, replace=True)


def test_artifact_larger_than_the_disk_is_refused_up_front(
    small_root: Path, tmp_path: Path
) -> None:
    fill(small_root, OLD)
    before = picture(small_root)
    big = make_bundle(tmp_path / "big.tar", {"k9/kernel.so": bytes(6 * 1024 * 1024)})
    seen: list[str] = []
    with pytest.raises(NoSpaceError, match="free"):
        install(small_root, big, events=lambda event: seen.append(event.name))
    assert "install.staged" not in seen
    assert picture(small_root) == before
    assert leftovers(small_root) == []


def fill_up(directory: Path) -> Path:
    path = directory / "hog"
    with open(path, "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return path


@pytest.mark.parametrize("when", ["fixup", "install.staged", "install.journaled", "install.moved"])
@pytest.mark.parametrize("replace", [False, True])
def test_disk_that_fills_up_on_the_way_leaves_the_root_as_it_was(
    small_root: Path, bundle: Path, when: str, replace: bool
) -> None:
    fill(small_root, OLD)
    before = picture(small_root)

    def fixup(staged: Path, root: Path) -> FixupReport:
        if when == "fixup":
            fill_up(small_root)
            (staged / "k1/more").write_bytes(bytes(100_000))
        return FixupReport()

    def sink(event: Event) -> None:
        if event.name == when:
            fill_up(small_root)

    with pytest.raises(NoSpaceError) as caught:
        install_roots(
            [(RootInstall("", small_root, first_parts(1), (fixup,)), bundle)],
            artifact=ORIGIN,
            replace=replace,
            lock_timeout_seconds=1,
            events=sink,
        )
    assert caught.value.exit_code == 16
    (small_root / "hog").unlink()
    assert picture(small_root) == before
    assert leftovers(small_root) == []
    install(small_root, bundle, replace=replace)
    assert contents(small_root) == finished(OLD, replace)


# --- several installers -----------------------------------------------------------------------

PARTS = 6


def stamped(stamp: int) -> dict[str, bytes]:
    return {f"k{k}/part{p}": b"%d" % stamp * 5_000 for k in range(4) for p in range(PARTS)}


def read_entry(root: Path, entry: str) -> set[bytes] | None:
    """Read an entry through one descriptor; None when it is absent or was replaced meanwhile."""
    try:
        descriptor = os.open(root / entry, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        names = os.listdir(descriptor)
        found = set()
        for name in names:
            with open(os.open(name, os.O_RDONLY, dir_fd=descriptor), "rb") as file:
                found.add(file.read())
    except FileNotFoundError:
        names, found = [], set()
    finally:
        inode = os.fstat(descriptor).st_ino
        os.close(descriptor)
    with suppress(FileNotFoundError):
        if inode == os.stat(root / entry).st_ino:
            assert len(names) == PARTS
            return found
    return None


@pytest.mark.parametrize(
    ("installers", "replace", "exists"),
    [(2, False, False), (8, False, True), (2, True, True), (8, True, True)],
)
def test_reader_sees_whole_entries_while_installers_meet(
    tmp_path: Path, installers: int, replace: bool, exists: bool
) -> None:
    root = tmp_path / "root"
    if exists:
        fill(root, {"mine/x": b"1"})
    valid = [{next(iter(stamped(number).values()))} for number in range(installers)]
    reads = 0
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                install_process.install_process(
                    root=root,
                    bundle=make_bundle(tmp_path / f"{number}.tar", stamped(number)),
                    replace=replace,
                    wait=True,
                )
            )
            for number in range(installers)
        ]
        for child in children:
            child.tell("go")
        while any(child.process.poll() is None for child in children):
            for k in range(4):
                found = read_entry(root, f"k{k}")
                assert found is None or found in valid
                reads += found is not None
        for child in children:
            assert child.wait() == 0, child.errors
    assert reads > 0
    assert all(read_entry(root, f"k{k}") in valid for k in range(4))
    assert leftovers(root) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_user_without_a_passwd_entry_can_install() -> None:
    with tempfile.TemporaryDirectory() as directory:  # tmp_path cannot be entered by other users
        os.chmod(directory, 0o755)
        bundle = make_bundle(Path(directory, "b.tar"), NEW)
        home = fill(Path(directory, "home"), {})
        os.chown(home, 1001230000, 0)
        for root in (home / "cache", home):  # beside; then inside, as the parent is not writable
            status, out, err = install_process.run(root=root, bundle=bundle, uid=1001230000)
            assert status == 0, err
            assert out["installed"] == ["k1", "k2", "k3"]
        assert workspace_of(home) == home / ".mx-artifacts"
        assert (home / "k1").stat().st_uid == 1001230000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_engine_of_a_random_user_extends_what_root_installed() -> None:
    """Pain 5.4: an init container as root, then OpenShift's uid with gid 0, in one volume."""
    with tempfile.TemporaryDirectory() as directory:
        volume = fill(Path(directory, "volume"), {})
        os.chown(volume, 0, 0)
        for path, mode in ((Path(directory), 0o755), (volume, 0o2775)):
            path.chmod(mode)
        bundle = make_bundle(Path(directory, "b.tar"), NEW, mode=0o600)
        root = volume / "triton"
        previous = os.umask(0o077)
        try:
            install(root, bundle)
        finally:
            os.umask(previous)
        engine = "cat k1/kernel.so k2/deep/kernel.so && mkdir k9 && echo 9 > k2/deep/more"
        done = subprocess.run(
            ["/bin/sh", "-c", engine],
            cwd=root,
            user=1001230000,
            group=0,
            extra_groups=[],
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_that_may_not_be_written_is_refused() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        bundle = make_bundle(Path(directory, "b.tar"), NEW)
        root = fill(Path(directory, "root"), OLD)
        before = picture(root)
        status, _, err = install_process.run(root=root, bundle=bundle, uid=1001230000)
        assert status == 1
        assert f"UnusablePlaceError: {root} cannot be a cache root: user id 1001230000" in err
        assert picture(root) == before
