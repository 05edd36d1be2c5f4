"""What an install puts where: entries, access, links, several roots, receipts."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mx_artifacts.bundle.rules import each_file, first_parts
from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.errors import (
    BundleError,
    ConfigurationError,
    InstallError,
    NoSpaceError,
    RelocationError,
    UnsafePathError,
)
from mx_artifacts.filesystem import rename
from mx_artifacts.install.base import RootInstall
from mx_artifacts.install.receipts.receipt import load_receipt
from mx_artifacts.kinds.base import FixupReport
from mx_artifacts.runtime.clock import FakeClock
from tests.support.install_cases import (
    MTIME_SECONDS,
    NEW,
    OLD,
    ORIGIN,
    contents,
    fill,
    install,
    install_roots,
    leftovers,
    make_bundle,
    picture,
    workspace_of,
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "artifact.tar", NEW)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "root"


def test_absent_root_appears_whole(root: Path, bundle: Path) -> None:
    report = install(root, bundle)
    assert contents(root) == NEW
    assert report.roots[0].installed == ("k1", "k2", "k3")
    assert (report.roots[0].files, report.roots[0].bytes) == (5, sum(map(len, NEW.values())))
    assert not report.unchanged
    assert leftovers(root) == []
    assert (root / "k1/kernel.so").stat().st_mtime_ns == MTIME_SECONDS * 10**9


def test_empty_root_keeps_its_owner_and_mode(root: Path, bundle: Path) -> None:
    fill(root, {}).chmod(0o2770)
    before = root.stat()
    install(root, bundle)
    after = root.stat()
    assert contents(root) == NEW
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)
    assert after.st_ino != before.st_ino  # one rename, not one for each entry


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_installer_run_as_root_leaves_a_cache_that_its_owner_can_extend(
    root: Path, bundle: Path
) -> None:
    fill(root, {"mine": b""})
    os.chown(root, 4242, 4343)
    root.chmod(0o775)
    install(root, bundle)
    for path in (root / "k2", root / "k2/deep", root / "k2/deep/kernel.so"):
        assert (path.stat().st_uid, path.stat().st_gid) == (4242, 4343)
        assert path.stat().st_mode & stat.S_IWGRP


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_directories_created_above_the_root_belong_to_the_owner_of_their_parent(
    tmp_path: Path, bundle: Path
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o775)
    os.chown(volume, 4242, 4343)
    root = volume / ".cache" / "engine" / "cache"
    install(root, bundle)
    # FlashInfer keeps a log beside its modules, and does not start where it cannot.
    for path in (*root.parents[:2], root, root / "k1"):
        assert (path.stat().st_uid, path.stat().st_gid) == (4242, 4343)
        assert path.stat().st_mode & stat.S_IWGRP


@pytest.mark.parametrize(
    ("mode", "wanted"), [(0o4777, 0o755), (0o600, 0o644), (0o000, 0o644), (0o555, 0o755)]
)
def test_odd_modes_become_plain_ones(
    root: Path, tmp_path: Path, mode: int, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    previous = os.umask(0o077)
    try:
        install(root, make_bundle(tmp_path / "odd.tar", {"k1/kernel.so": b"x"}, mode=mode))
    finally:
        os.umask(previous)
    assert stat.S_IMODE((root / "k1/kernel.so").stat().st_mode) == wanted
    assert stat.S_IMODE((root / "k1").stat().st_mode) == 0o755


def test_entry_that_exists_wins(root: Path, bundle: Path) -> None:
    fill(root, OLD)
    report = install(root, bundle).roots[0]
    assert (report.installed, report.kept) == (("k2",), ("k1", "k3"))
    assert contents(root) == {
        **OLD,
        **{name: data for name, data in NEW.items() if name.startswith("k2/")},
    }
    assert leftovers(root) == []


@pytest.mark.parametrize("with_renameat2", [True, False])
def test_replace_swaps_whole_entries(
    root: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch, with_renameat2: bool
) -> None:
    if not with_renameat2:
        monkeypatch.setattr(rename, "_renameat2", None)
    fill(root, {**OLD, "k1/only_in_old": b"must not survive in the new entry"})
    report = install(root, bundle, replace=True).roots[0]
    assert (report.installed, report.kept) == (("k1", "k2", "k3"), ())
    assert contents(root) == {**NEW, "mine/kernel.so": b"compiled here"}
    assert leftovers(root) == []


@pytest.mark.parametrize("with_renameat2", [True, False])
def test_entry_that_an_engine_makes_meanwhile_wins(
    root: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch, with_renameat2: bool
) -> None:
    if not with_renameat2:
        monkeypatch.setattr(rename, "_renameat2", None)
    fill(root, {"mine": b""})

    def compile_k2(event: object) -> None:
        if event.name == "install.journaled":  # type: ignore[attr-defined]
            fill(root, {"k2/kernel.so": b"by the engine"})

    report = install(root, bundle, events=compile_k2).roots[0]
    assert (report.installed, report.kept) == (("k1", "k3"), ("k2",))
    assert contents(root / "k2") == {"kernel.so": b"by the engine"}


def test_entry_that_is_removed_meanwhile_is_for_the_next_install(root: Path, bundle: Path) -> None:
    """It was staged to be compared only, and so is not on the disk for certain."""
    fill(root, OLD)

    def remove_k3(event: object) -> None:
        if event.name == "install.staged":  # type: ignore[attr-defined]
            (root / "k3").unlink(missing_ok=True)

    report = install(root, bundle, events=remove_k3).roots[0]
    assert (report.installed, report.kept) == (("k2",), ("k1",))
    assert "removed during the install" in report.dropped["k3"]
    assert install(root, bundle).roots[0].installed == ("k3",)


def test_only_what_may_be_moved_in_is_made_durable(
    root: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root, OLD)
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", fsync)
    durable = RootInstall("", root, first_parts(1), durable=True)
    install_roots([(durable, bundle)])
    staged = {path.partition("/staging/")[2].partition("/tree/")[2] for path in synced}
    assert {path for path in staged if path.endswith((".so", ".json"))} == {
        "k2/deep/kernel.so",
        "k2/kernel.json",
    }


def test_root_that_an_engine_makes_meanwhile_is_filled_by_entry(root: Path, bundle: Path) -> None:
    def make_root(event: object) -> None:
        if event.name == "install.journaled":  # type: ignore[attr-defined]
            fill(root, {"k1/kernel.so": b"by the engine"})

    report = install(root, bundle, events=make_root).roots[0]
    assert (report.installed, report.kept) == (("k2", "k3"), ("k1",))
    assert contents(root / "k1") == {"kernel.so": b"by the engine"}
    assert leftovers(root) == []


def test_files_as_entries_make_the_directories_above_them(root: Path, bundle: Path) -> None:
    fill(root, {"k2/mine": b"kept"})
    install_roots(
        [(RootInstall("", root, each_file), bundle)], artifact=ORIGIN, lock_timeout_seconds=1
    )
    assert contents(root) == {**NEW, "k2/mine": b"kept"}


def test_file_where_an_entry_needs_a_directory_is_reported(root: Path, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b.tar", {"k1/a/x": b"1", "k2/a/x": b"2", "k2/b/": b""})
    fill(root, {"k1": b"a file"})
    report = install_roots(
        [(RootInstall("", root, first_parts(2)), bundle)], artifact=ORIGIN, lock_timeout_seconds=1
    ).roots[0]
    assert report.installed == ("k2/a", "k2/b")
    assert list(report.dropped) == ["k1/a"]
    assert (root / "k1").read_bytes() == b"a file"


def test_installing_again_changes_nothing_and_says_so(root: Path, bundle: Path) -> None:
    first = install(root, bundle)
    before = picture(root)
    second = install(root, bundle)
    assert second.unchanged
    assert second.roots[0].kept == ("k1", "k2", "k3")
    assert second.receipt_path == first.receipt_path
    assert picture(root) == before


# --- links and hostile names ------------------------------------------------------------------


def test_root_that_is_a_link_is_followed(root: Path, bundle: Path, tmp_path: Path) -> None:
    real = fill(tmp_path / "real", {})
    root.parent.mkdir()
    root.symlink_to(real)
    report = install(root, bundle)
    assert report.roots[0].root == real
    assert contents(real) == NEW
    assert root.is_symlink()


@pytest.mark.parametrize("replace", [False, True])
def test_link_on_the_way_is_refused(
    root: Path, bundle: Path, tmp_path: Path, replace: bool
) -> None:
    outside = fill(tmp_path / "outside", {"precious": b"data"})
    fill(root, {"mine": b""})
    (root / "k2").symlink_to(outside)
    before = picture(root)
    with pytest.raises(UnsafePathError, match="k2"):
        install_roots(
            [(RootInstall("", root, each_file), bundle)],
            artifact=ORIGIN,
            replace=replace,
            lock_timeout_seconds=1,
        )
    assert contents(outside) == {"precious": b"data"}
    assert picture(root) == before
    assert leftovers(root) == []


@pytest.mark.parametrize("replace", [False, True])
def test_link_in_place_of_an_entry_is_never_followed(
    root: Path, bundle: Path, tmp_path: Path, replace: bool
) -> None:
    outside = fill(tmp_path / "outside", {"precious": b"data"})
    fill(root, {})
    (root / "k1").symlink_to(outside)
    report = install(root, bundle, replace=replace).roots[0]
    assert contents(outside) == {"precious": b"data"}
    assert (root / "k1").is_symlink() is not replace
    assert ("k1" in report.kept) is not replace


def test_workspace_names_in_a_bundle_are_refused(root: Path, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bad.tar", {"k1/x": b"", ".mx-artifacts/journal.json": b"{}"})
    with pytest.raises(UnsafePathError, match="mx-artifacts"):
        install(root, bundle)
    assert picture(root) is None


def test_workspace_that_is_a_link_is_refused(root: Path, bundle: Path, tmp_path: Path) -> None:
    elsewhere = fill(tmp_path / "elsewhere", {})
    root.parent.mkdir()
    root.with_name(f".mx-artifacts.{root.name}").symlink_to(elsewhere)
    with pytest.raises(UnsafePathError, match="mx-artifacts"):
        install(root, bundle)
    assert contents(elsewhere) == {}


def test_damaged_bundle_leaves_nothing(root: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.tar").write_bytes(make_bundle(tmp_path / "b.tar", NEW).read_bytes()[:700])
    with pytest.raises(BundleError):
        install(root, tmp_path / "cut.tar")
    assert picture(root) is None
    assert leftovers(root) == []


def test_root_that_is_a_file_is_refused(root: Path, bundle: Path) -> None:
    root.parent.mkdir()
    root.write_bytes(b"not a directory")
    with pytest.raises(InstallError, match="not a directory"):
        install(root, bundle)
    assert root.read_bytes() == b"not a directory"


def test_an_invalid_rule_is_refused(root: Path, bundle: Path) -> None:
    for rule in (lambda path: "elsewhere", lambda path: "k1" if "so" in path else path):
        with pytest.raises(InstallError, match="rule"):
            install_roots(
                [(RootInstall("", root, rule), bundle)], artifact=ORIGIN, lock_timeout_seconds=1
            )
    assert picture(root) is None


# --- fix-ups ----------------------------------------------------------------------------------


def test_fixups_see_the_final_root_and_may_drop_entries(root: Path, bundle: Path) -> None:
    def rewrite(staged: Path, root: Path) -> FixupReport:
        (staged / "k1/kernel.json").write_text(str(root))
        (staged / "k3").unlink()
        return FixupReport(rewritten=1, dropped={"k3": "its group is incomplete"})

    report = install_roots(
        [(RootInstall("", root, first_parts(1), (rewrite,)), bundle)],
        artifact=ORIGIN,
        lock_timeout_seconds=1,
    )
    assert (root / "k1/kernel.json").read_text() == str(root)
    assert not (root / "k3").exists()
    assert report.roots[0].installed == ("k1", "k2")
    assert load_receipt(report.receipt_path).roots[0].dropped == {"k3": "its group is incomplete"}


def test_fixup_that_refuses_leaves_the_root_as_it_was(root: Path, bundle: Path) -> None:
    def refuse(staged: Path, root: Path) -> FixupReport:
        raise RelocationError(f"{staged} cannot live in {root}")

    fill(root, OLD)
    before = picture(root)
    with pytest.raises(RelocationError):
        install_roots(
            [(RootInstall("", root, first_parts(1), (refuse,)), bundle)],
            artifact=ORIGIN,
            lock_timeout_seconds=1,
        )
    assert picture(root) == before
    assert leftovers(root) == []


# --- several roots ----------------------------------------------------------------------------


def _two_roots(
    first: Path, second: Path, bundle: Path, bad_bundle: Path
) -> list[tuple[RootInstall, Path]]:
    return [
        (RootInstall("", first, first_parts(1)), bundle),
        (RootInstall("autotune", second, first_parts(1)), bad_bundle),
    ]


def test_two_roots_have_one_receipt(root: Path, bundle: Path, tmp_path: Path) -> None:
    second = fill(tmp_path / "a_second", OLD)  # sorts before the first: locks do not follow order
    report = install_roots(
        _two_roots(root, second, bundle, bundle), artifact=ORIGIN, lock_timeout_seconds=1
    )
    assert [r.root for r in report.roots] == [root, second]
    receipt = load_receipt(report.receipt_path)
    assert [(r.name, len(r.installed)) for r in receipt.roots] == [("", 3), ("autotune", 1)]
    assert report.receipt_path.parent == workspace_of(root) / "receipts"


def test_failure_in_the_second_root_takes_back_the_first(
    root: Path, bundle: Path, tmp_path: Path
) -> None:
    second = fill(tmp_path / "second", {})
    (second / "k2").symlink_to(tmp_path)
    roots = [
        (RootInstall("", root, first_parts(1)), bundle),
        (RootInstall("autotune", second, each_file), bundle),
    ]
    with pytest.raises(UnsafePathError):
        install_roots(roots, artifact=ORIGIN, lock_timeout_seconds=1)
    assert picture(root) is None
    assert leftovers(root) == leftovers(second) == []
    assert not workspace_of(root).exists()


def test_root_within_a_root(root: Path, bundle: Path) -> None:
    roots = _two_roots(root, root / "autotune", bundle, bundle)
    install_roots(roots, artifact=ORIGIN, lock_timeout_seconds=1)
    inner = {f"autotune/{name}": data for name, data in NEW.items()}
    installed = {
        name: data for name, data in contents(root).items() if not name.startswith(".mx-artifacts")
    }
    assert installed == {**NEW, **inner}


def test_one_directory_for_two_roots_is_refused(root: Path, bundle: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    with pytest.raises(ConfigurationError, match="the same directory"):
        install_roots(
            _two_roots(root, link, bundle, bundle), artifact=ORIGIN, lock_timeout_seconds=1
        )


# --- receipt and space ------------------------------------------------------------------------


def test_the_receipt_has_artifact_source_and_time(root: Path, bundle: Path) -> None:
    fill(root, {"k3": b"mine"})
    report = install(root, bundle, clock=FakeClock(1_700_000_000.25))
    assert report.receipt_path.name == f"20231114T221320Z-{ORIGIN.artifact_id[:12]}.json"
    receipt = load_receipt(report.receipt_path)
    assert receipt.artifact == ORIGIN
    assert receipt.installed_at == "2023-11-14T22:13:20.250+00:00"
    assert receipt.roots[0].root == str(root)
    assert receipt.roots[0].kept == ("k3",)
    for entry in receipt.roots[0].installed:
        for file in entry.files:
            path = root / file.path
            assert file.checksum == crc32c_hex(crc32c(path.read_bytes()))
            assert file.mtime_ns == path.stat().st_mtime_ns
            assert (file.size, file.mode) == (path.stat().st_size, 0o644)


def test_two_receipts_of_one_second_do_not_overwrite_each_other(root: Path, bundle: Path) -> None:
    clock = FakeClock()
    paths = {install(root, bundle, clock=clock, replace=True).receipt_path for _ in range(3)}
    assert len(paths) == 3
    assert all(path.exists() for path in paths)


def test_too_little_space_is_said_before_anything_is_written(
    root: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs

    def nearly_full(path: Path) -> os.statvfs_result:
        values = list(real(path))
        values[4] = 3  # f_bavail
        return os.statvfs_result(values)

    fill(root, OLD)
    before = picture(root)
    monkeypatch.setattr(os, "statvfs", nearly_full)
    with pytest.raises(NoSpaceError, match="free") as caught:
        install(root, bundle)
    assert "--root" in caught.value.hint()
    assert "--bundle-root" not in caught.value.hint()
    assert picture(root) == before
    assert leftovers(root) == []
