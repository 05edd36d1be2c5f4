"""What was in a target's root before: used there, or told with the reason; never changed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.bundle.existing_entries import count_entries
from mx_artifacts.install.base import InstallReport, RootInstall, RootReport
from mx_artifacts.install.receipts.receipt import load_receipt
from mx_artifacts.install.state.already_installed import find_installed
from mx_artifacts.kinds.base import CacheKind, EntryVerdict, FixupReport
from mx_artifacts.kinds.existing_entries import existing_entry_judge
from mx_artifacts.kinds.registry import all_kinds, get_kind
from mx_artifacts.kinds.triton.group_files import relocate_triton_groups
from mx_artifacts.runtime.clock import FakeClock
from tests.support.install_cases import ORIGIN, contents, fill, install_roots, picture
from tests.support.kind_trees import (
    ARTIFACT,
    DEEP_JIT,
    KEY,
    KIND_TREES,
    MEGA,
    OTHER_KEY,
    TILE,
    expected_entries,
    make_tree,
)
from tests.support.packing import pack_to_file
from tests.unit.kinds.test_entry_checks import FAULTS

MADE_SECONDS = 1_700_000_000
TRITON, INDUCTOR = get_kind("triton"), get_kind("inductor")


def fetched(kind: CacheKind, tmp_path: Path) -> Path:
    """Return a bundle of the kind's whole tree, as another node published it."""
    source = make_tree(tmp_path / "source", KIND_TREES[kind.name])
    for path in expected_entries(kind):
        os.utime(source / path, (MADE_SECONDS, MADE_SECONDS))
    pack_to_file(source, tmp_path / "artifact.tar", kind.pack, clock=FakeClock(4e9))
    return tmp_path / "artifact.tar"


def install(kind: CacheKind, root: Path, bundle: Path, **options: Any) -> InstallReport:
    """Install as the product does; these trees have no real state of ninja, so it isn't asked."""
    fixups = options.pop("fixups", [f for f in kind.fixups if f is relocate_triton_groups])
    judge = options.pop("judge", existing_entry_judge(kind))
    part = RootInstall(
        "",
        root,
        kind.pack.entry_of,
        tuple(fixups),
        kind.pack.keep_mtimes,
        judge=judge,
        atomic_entries=kind.atomic_entries,
    )
    return install_roots([(part, bundle)], artifact=ORIGIN, lock_timeout_seconds=1.0, **options)


def into(kind: CacheKind, root: Path, bundle: Path, **options: Any) -> RootReport:
    (report,) = install(kind, root, bundle, **options).roots
    return report


def made_here(kind: CacheKind, root: Path) -> Path:
    """Make the kind's tree as an engine of this very root would have, or an install of it."""
    make_tree(root, KIND_TREES[kind.name])
    if relocate_triton_groups in kind.fixups:
        relocate_triton_groups(root, root)
    for path in expected_entries(kind):
        os.utime(root / path, (MADE_SECONDS, MADE_SECONDS))
    return root


@pytest.mark.parametrize("name", FAULTS)
def test_entries_with_a_fault_are_not_usable(name: str, tmp_path: Path) -> None:
    kind_name, entry, path, damage, reason = FAULTS[name]
    kind = get_kind(kind_name)
    root = made_here(kind, tmp_path / "root")
    damage(root / path)
    before = picture(root)
    bundle = fetched(kind, tmp_path)
    if kind.atomic_entries:
        assert_repaired(into(kind, root, bundle), entry, reason)
        assert contents(root).keys() >= expected_entries(kind).keys()
        return
    report = into(kind, root, bundle)
    assert (dict(report.unusable), dict(report.repaired)) == ({entry: reason}, {})
    assert set(report.kept) == set(expected_entries(kind).values())
    assert not report.installed
    assert picture(root) == before

    replaced = into(kind, root, tmp_path / "artifact.tar", replace=True)
    assert (dict(replaced.unusable), replaced.kept) == ({}, ())
    assert contents(root).keys() >= expected_entries(kind).keys()


def assert_repaired(report: RootReport, entry: str, reason: str) -> None:
    """Check that the fetched entry took the place of one that nothing else would have mended."""
    assert (report.installed, dict(report.repaired)) == ((entry,), {entry: reason})
    assert (dict(report.unusable), len(report.same)) == ({}, len(report.kept))


@pytest.mark.parametrize("litter", ["", "tmp.1/kernel.cu"])
def test_an_entry_that_a_crash_left_empty(litter: str, tmp_path: Path) -> None:
    """DeepGEMM 2.x dies of one, and DeepJIT compiles it again at every start."""
    kind = get_kind("deep_gemm")
    root = made_here(kind, tmp_path / "root")
    for path in (root / DEEP_JIT).iterdir():
        path.unlink()
    if litter:
        fill(root / DEEP_JIT, {litter: b""})
    bundle = fetched(kind, tmp_path)
    assert_repaired(into(kind, root, bundle), DEEP_JIT, "it is empty")
    assert (root / DEEP_JIT / ".committed").exists()
    assert not into(kind, root, bundle).installed


def test_an_entry_at_fault_that_is_work_in_progress_is_left_alone(tmp_path: Path) -> None:
    kind = get_kind("tvm_ffi")
    root = made_here(kind, tmp_path / "root")
    library = root / "add_0123456789abcdef/add.so"
    library.unlink()
    report = into(kind, root, fetched(kind, tmp_path))
    assert (report.installed, dict(report.repaired)) == ((), {})
    assert not library.exists()


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)
def test_entries_compiled_on_this_node_give_no_warning(kind: CacheKind, tmp_path: Path) -> None:
    bundle = fetched(kind, tmp_path)
    root = made_here(kind, tmp_path / "root")
    report = into(kind, root, bundle)
    assert (dict(report.unusable), dict(report.unverified)) == ({}, {})
    assert set(report.same) == set(report.kept) == set(expected_entries(kind).values())


@pytest.mark.parametrize("kind", [TRITON, INDUCTOR], ids=lambda kind: kind.name)
def test_a_raw_copy_of_another_root(kind: CacheKind, tmp_path: Path) -> None:
    """As `cp -r` brings it: what names the other root is told, the rest is used."""
    root = make_tree(tmp_path / "root", KIND_TREES[kind.name])
    report = into(kind, root, fetched(kind, tmp_path))
    with_groups = {e for p, e in expected_entries(kind).items() if "/__grp__" in p}
    assert report.unusable.keys() == with_groups
    assert set(report.same) == set(expected_entries(kind).values()) - with_groups
    for entry, reason in report.unusable.items():
        assert f"__grp__block.json points at /made/here/{KEY}/block.cubin" in reason
        assert reason.endswith("which is not there")
        assert reason.startswith("__grp__") is (entry != MEGA and entry != "0a1b2c3d4e")


def test_a_group_that_points_at_another_cache_that_is_there(tmp_path: Path) -> None:
    """Triton would read that one: it is no use of what is here, and may go any day."""
    root, other = tmp_path / "root", made_here(TRITON, tmp_path / "other")
    made_here(TRITON, root)
    group = f"{KEY}/__grp__block.json"
    (root / group).write_bytes((other / group).read_bytes())
    report = into(TRITON, root, fetched(TRITON, tmp_path))
    assert report.unusable[KEY].endswith("which is another file than the one here")


def test_another_name_of_the_same_root(tmp_path: Path) -> None:
    real, alias = tmp_path / "real", tmp_path / "alias"
    alias.symlink_to(real)
    make_tree(real, KIND_TREES["triton"])
    relocate_triton_groups(real, alias)  # as an engine whose root is the link
    report = into(TRITON, alias, fetched(TRITON, tmp_path))
    assert (set(report.kept), dict(report.unusable)) == ({KEY, OTHER_KEY}, {})
    assert report.same == (OTHER_KEY,)


def test_a_file_where_a_directory_should_be(tmp_path: Path) -> None:
    root = fill(tmp_path / "root", {KEY: b"", "mine": b""})
    report = into(TRITON, root, fetched(TRITON, tmp_path))
    assert report.installed == (OTHER_KEY,)
    assert "a file where a directory should be" in report.unusable[KEY]


def test_links_are_not_fit_for_use(tmp_path: Path) -> None:
    elsewhere = made_here(TRITON, tmp_path / "elsewhere")
    root = fill(tmp_path / "root", {"mine": b""})
    (root / KEY).symlink_to(elsewhere / KEY)
    (root / "empty").mkdir()
    (root / OTHER_KEY).symlink_to("empty")
    report = install(TRITON, root, fetched(TRITON, tmp_path))
    assert report.roots[0].kept == (OTHER_KEY, KEY)
    assert report.roots[0].unusable == dict.fromkeys(
        (KEY, OTHER_KEY), "it is a symbolic link; the installer does not look through it"
    )
    assert report.nothing_usable


@pytest.mark.parametrize("at", [DEEP_JIT, f"{DEEP_JIT}/kernel.cubin"])
def test_an_entry_that_cannot_be_read_is_not_treated_as_the_result_of_a_crash(
    at: str, tmp_path: Path
) -> None:
    """Where the fetched entry replaces one at fault unasked, a link of the operator's stays."""
    kind = get_kind("deep_gemm")
    elsewhere, root = made_here(kind, tmp_path / "other"), made_here(kind, tmp_path / "root")
    (root / at).rename(tmp_path / "gone")
    (root / at).symlink_to(elsewhere / at)
    report = into(kind, root, fetched(kind, tmp_path))
    assert (report.installed, set(report.unusable)) == ((), {DEEP_JIT})
    assert (root / at).is_symlink()


def test_an_existing_entry_that_cannot_be_read_is_not_usable(tmp_path: Path) -> None:
    root = made_here(TRITON, tmp_path / "root")
    (root / KEY / "block.ttir").unlink(missing_ok=True)
    (root / KEY / "block.ttir").symlink_to("/nowhere")
    verdict = existing_entry_judge(TRITON)(root, KEY, None)
    assert (verdict.unusable_reason, verdict.unverified_reason) == (
        f"{KEY}/block.ttir: link to nothing",
        "",
    )


def test_entries_identical_to_the_fetched_ones_are_not_checked(tmp_path: Path) -> None:
    judged = []

    def judge(root: Path, entry: str, tree: Path | None) -> EntryVerdict:
        assert tree is not None
        assert (tree / entry).is_dir()
        judged.append(entry)
        return EntryVerdict(unverified_reason="who knows")

    root = made_here(TRITON, tmp_path / "root")
    (root / KEY / "block.json").write_text("{}")
    report = into(TRITON, root, fetched(TRITON, tmp_path), judge=judge)
    assert judged == [KEY]
    assert (report.same, dict(report.unverified)) == ((OTHER_KEY,), {KEY: "who knows"})


def test_times_count_where_the_kind_keeps_them(tmp_path: Path) -> None:
    kind = get_kind("tvm_ffi")
    root = make_tree(tmp_path / "root", KIND_TREES["tvm_ffi"])
    for path in expected_entries(kind):
        os.utime(root / path, (1, 1))
    report = into(kind, root, fetched(kind, tmp_path))
    assert report.same == ()
    assert ".ninja_log is damaged" in report.unusable["add_0123456789abcdef"]


# --- what is told later --------------------------------------------------------------------------


def test_the_receipt_keeps_it_until_the_engine_has_mended_it(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "root", {f"{KEY}/block.cubin": None})
    bundle = fetched(TRITON, tmp_path)
    first = install(TRITON, root, bundle)
    assert first.roots[0].installed == (OTHER_KEY,)
    assert "no group file" in first.roots[0].unusable[KEY]
    assert load_receipt(first.receipt_path).roots[0].unusable == first.roots[0].unusable
    assert (first.unchanged, first.nothing_usable) == (False, False)

    judge = existing_entry_judge(TRITON)
    again = find_installed({"": root}, ORIGIN.artifact_id, judge)
    assert again == install(TRITON, root, bundle)
    assert again is not None
    assert again.unchanged
    assert again.roots[0].unusable == first.roots[0].unusable
    assert again.roots[0].same == (OTHER_KEY,)

    make_tree(root, {path: None for path in KIND_TREES["triton"] if path.startswith(KEY)})
    relocate_triton_groups(root, root)
    mended = find_installed({"": root}, ORIGIN.artifact_id, judge)
    assert mended is not None
    assert mended.roots[0].unusable == {}


def test_entries_that_changed_after_their_install_are_unverified(tmp_path: Path) -> None:
    root = tmp_path / "root"
    bundle = fetched(TRITON, tmp_path)
    first = install(TRITON, root, bundle)
    metadata = root / KEY / "block.json"
    metadata.write_text('{"another": 1}')
    (kept,) = install(TRITON, root, bundle).roots
    assert (kept.same, dict(kept.unusable)) == ((OTHER_KEY,), {})
    assert kept.unverified == {
        KEY: "not verified: it was changed since it was installed "
        f"(receipt {first.receipt_path.name})"
    }
    into(TRITON, root, bundle, replace=True)
    assert not into(TRITON, root, bundle).unverified


def test_receipts_of_before_it_was_known_are_read(tmp_path: Path) -> None:
    receipt = install(TRITON, tmp_path / "root", fetched(TRITON, tmp_path)).receipt_path
    document = json.loads(receipt.read_text())
    del document["roots"][0]["unusable"]
    receipt.write_text(json.dumps(document))
    assert load_receipt(receipt).roots[0].unusable == {}


def test_an_artifact_of_no_use(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "root", {f"{KEY}/block.cubin": None})
    (root / OTHER_KEY).mkdir()
    (root / OTHER_KEY / "cuda_utils.cpython-311-x86_64-linux-gnu.so").write_bytes(b"")
    report = install(TRITON, root, fetched(TRITON, tmp_path))
    assert (report.nothing_usable, report.unchanged) == (True, True)
    assert report.roots[0].unusable.keys() == {KEY, OTHER_KEY}
    assert not install(TRITON, root, tmp_path / "artifact.tar", replace=True).nothing_usable


@pytest.mark.parametrize("here_is_fit", [True, False])
def test_a_dropped_entry_makes_nothing_usable_only_if_no_usable_entry_exists(
    tmp_path: Path, here_is_fit: bool
) -> None:
    def drop(staged: Path, root: Path) -> FixupReport:
        for name in (KEY, OTHER_KEY):
            for file in (staged / name).iterdir():
                file.unlink()
            (staged / name).rmdir()
        return FixupReport(dropped=dict.fromkeys((KEY, OTHER_KEY), "no compiler"))

    root = make_tree(tmp_path / "root", KIND_TREES["triton"])
    if here_is_fit:
        relocate_triton_groups(root, root)
    report = install(TRITON, root, fetched(TRITON, tmp_path), fixups=(drop,))
    assert report.roots[0].kept == (OTHER_KEY, KEY)
    assert dict(report.roots[0].dropped) == ({} if here_is_fit else {KEY: "no compiler"})
    assert report.roots[0].unusable.keys() == (set() if here_is_fit else {KEY})
    assert not report.nothing_usable


def test_entries_of_a_root_are_counted(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "root", KIND_TREES["tilelang"])
    assert count_entries(root, get_kind("tilelang").pack) == 4
    assert (root / TILE).is_dir()
    assert count_entries(tmp_path / "absent", TRITON.pack) == 0


def test_judging_never_raises(tmp_path: Path) -> None:
    root = made_here(INDUCTOR, tmp_path / "root")
    (root / "0a1b2c3d4e/rank_0_0/backbone" / ARTIFACT).unlink()
    (root / "0a1b2c3d4e/rank_0_0/backbone" / ARTIFACT).symlink_to("/nowhere")
    verdict = existing_entry_judge(INDUCTOR)(root, "0a1b2c3d4e", None)
    assert "link to nothing" in verdict.unusable_reason
