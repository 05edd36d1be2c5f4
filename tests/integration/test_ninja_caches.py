"""What ninja built is current where it was installed, as ninja itself says, or is left out.

A small C project in FlashInfer's layout (absolute outputs, sources beside the module, a header of
another package) travels as a bundle through the real installer. Real modules: tests/kinds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ninja
import pytest

from mx_artifacts.bundle.rules import no_fault
from mx_artifacts.install.base import ArtifactOrigin, RootInstall, RootReport
from mx_artifacts.kinds.base import EntryVerdict
from mx_artifacts.kinds.existing_entries import existing_entry_judge
from mx_artifacts.kinds.ninja import existing_modules, relocate
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.node.environment import environment
from mx_artifacts.runtime.clock import SYSTEM_CLOCK
from tests.support.install_cases import install_roots
from tests.support.ninja_program import ninja_work
from tests.support.packing import pack_to_file

FLASHINFER = get_kind("flashinfer")
SOURCE = "0.7.4/90a/generated/norm/norm.c"
MODULE = "0.7.4/90a/cached_ops/norm"
HOUR_NS = 3_600_000_000_000

BUILD_FILE = """\
ninja_required_version = 1.3
common_cflags = $
    -fPIC $
    -I{package} $
    -I{root}/0.7.4/90a/generated

rule compile
  command = cc -MMD -MF $out.d $common_cflags -c $in -o $out
  depfile = $out.d
  deps = gcc
rule link
  command = cc -shared $in -o $out

build {root}/{module}/norm_norm.o: compile {root}/{source}
build {root}/{module}/norm.so: link {root}/{module}/norm_norm.o
default {root}/{module}/norm.so
"""

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture(autouse=True)
def _ninja_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    path = environment().get("PATH", "")
    monkeypatch.setenv("PATH", f"{ninja.BIN_DIR}{os.pathsep}{path}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root with one module, built by the real ninja."""
    root, package = tmp_path / "source", tmp_path / "site-packages" / "include"
    package.mkdir(parents=True)
    (package / "norm.h").write_text("#define NORM 3\n")
    for path in (SOURCE, MODULE):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / SOURCE).write_text('#include "norm.h"\nint norm(void) { return NORM; }\n')
    (root / MODULE).mkdir()
    (root / MODULE / "build.ninja").write_text(
        BUILD_FILE.format(root=root, package=package, module=MODULE, source=SOURCE)
    )
    subprocess.run(["ninja", "-C", str(root / MODULE)], check=True, capture_output=True)
    return root


def move(
    source: Path,
    root: Path,
    *,
    keep_mtimes: bool = True,
    between: Callable[[], object] = lambda: None,
    replacing: bool = False,
) -> RootReport:
    """Pack `source`, remove it, and install it at `root`, with `between` done between the two.

    All is packed, also what our own publisher would leave out: not every sender is ours.
    """
    bundle = source.with_name("artifact.tar")
    rules = replace(FLASHINFER.pack, keep_mtimes=keep_mtimes, fault_of=no_fault)
    pack_to_file(source, bundle, rules, clock=SYSTEM_CLOCK)
    shutil.rmtree(source)
    between()
    [report] = install_roots(
        [
            (
                RootInstall(
                    "",
                    root,
                    FLASHINFER.pack.entry_of,
                    FLASHINFER.fixups,
                    FLASHINFER.pack.keep_mtimes,
                    existing_entry_judge(FLASHINFER),
                ),
                bundle,
            )
        ],
        artifact=ArtifactOrigin("a" * 64, "s", "w", "h:1", FLASHINFER.name),
        replace=replacing,
        lock_timeout_seconds=0,
    ).roots
    return report


def work_at(root: Path) -> str:
    return ninja_work(root / MODULE)


def header_of(root: Path) -> Path:
    return root.parent / "site-packages" / "include" / "norm.h"


def age(path: Path, by_ns: int) -> None:
    moment = path.stat().st_mtime_ns + by_ns
    os.utime(path, ns=(moment, moment))


# --- current wherever it is ------------------------------------------------------------------


@pytest.mark.parametrize("place", ["source", "elsewhere", "a/deeper/root"])
@pytest.mark.parametrize("keep_mtimes", [True, False])
@pytest.mark.parametrize("header_ages_ns", [0, HOUR_NS, -HOUR_NS], ids=["same", "newer", "older"])
def test_a_module_is_current_where_it_was_installed(
    root: Path, place: str, keep_mtimes: bool, header_ages_ns: int
) -> None:
    target = root.parent / place
    report = move(
        root,
        target,
        keep_mtimes=keep_mtimes,
        between=lambda: age(header_of(root), header_ages_ns),
    )
    assert (dict(report.dropped), dict(report.unverified)) == ({}, {})
    assert MODULE in report.installed
    assert work_at(target) == ""
    # The build file is what its engine would write there, or it would replace it.
    assert (target / MODULE / "build.ninja").read_text() == BUILD_FILE.format(
        root=target, package=header_of(root).parent, module=MODULE, source=SOURCE
    )


def test_a_later_change_of_a_header_is_seen(root: Path) -> None:
    target = root.parent / "elsewhere"
    move(root, target)
    age(header_of(root), HOUR_NS)
    assert "older than most recent input" in work_at(target)


def test_it_moves_on_from_where_it_was_moved_to(root: Path) -> None:
    second, third = root.parent / "second", root.parent / "third"
    move(root, second)
    assert not move(second, third).dropped
    assert work_at(third) == ""


def test_a_source_file_that_was_written_again_in_the_target_needs_no_build(root: Path) -> None:
    target = root.parent / "elsewhere"

    def write_again() -> None:
        (target / SOURCE).parent.mkdir(parents=True)
        (target / SOURCE).write_text('#include "norm.h"\nint norm(void) { return NORM; }\n')
        age(target / SOURCE, HOUR_NS)

    report = move(root, target, between=write_again)
    assert report.kept == (str(Path(SOURCE).parent),)
    assert work_at(target) == ""


# --- left out, with the reason -------------------------------------------------------------------


def dropped_reason(report: RootReport) -> str:
    assert MODULE not in report.installed
    assert list(report.dropped) == [MODULE]
    return report.dropped[MODULE]


def test_another_compile_environment(root: Path) -> None:
    report = move(root, root, between=lambda: header_of(root).unlink())
    assert f"{header_of(root)}, which it was compiled from, is not on this node" in dropped_reason(
        report
    )


def test_another_source_in_the_target(root: Path) -> None:
    target = root.parent / "elsewhere"

    def write_other() -> None:
        (target / SOURCE).parent.mkdir(parents=True)
        (target / SOURCE).write_text("int norm(void) { return 4; }\n")

    reason = dropped_reason(move(root, target, between=write_other))
    assert "is there already and differs" in reason


@pytest.mark.parametrize(
    ("name", "content", "because"),
    [
        ("build.ninja", None, "build.ninja is missing"),
        (".ninja_log", None, ".ninja_log is missing"),
        (".ninja_deps", None, ".ninja_deps is missing"),
        (".ninja_log", b"# ninja log v7\n1\t2", ".ninja_log is damaged"),
        (".ninja_deps", b"# ninjadeps\n\3\0\0\0", ".ninja_deps is damaged"),
        ("build.ninja", b"include /etc/passwd\n", "line 1 has the statement 'include'"),
        ("build.ninja", b"build\n", "line 1 has a build statement with 0 outputs"),
        ("norm_norm.o", None, "ninja would build it again"),
        ("norm.so", None, "ninja would build it again"),
    ],
)
def test_a_module_that_is_not_whole(
    root: Path, name: str, content: bytes | None, because: str
) -> None:
    (root / MODULE / name).unlink()
    if content is not None:
        (root / MODULE / name).write_bytes(content)
    assert because in dropped_reason(move(root, root.parent / "elsewhere"))


def test_a_module_whose_build_file_was_changed_after_the_build(root: Path) -> None:
    build_file = root / MODULE / "build.ninja"
    build_file.write_text(build_file.read_text().replace("-fPIC", "-fPIC -O3"))
    assert "built by another command" in dropped_reason(move(root, root))


def test_a_root_that_ninja_would_quote(root: Path) -> None:
    assert "would have to quote" in dropped_reason(move(root, root.parent / "a b"))


def test_outputs_outside_the_module(root: Path) -> None:
    log = root / MODULE / ".ninja_log"
    log.write_text(log.read_text() + "1\t2\t3\t../../../../../victim\tff\n")
    victim = root.parent / "victim"
    victim.write_text("")
    before = victim.stat().st_mtime_ns
    assert "is outside its directory" in dropped_reason(move(root, root))
    assert victim.stat().st_mtime_ns == before


# --- what was there before ----------------------------------------------------------------------


@pytest.mark.parametrize("original", ["gone", "there"])
def test_a_raw_copy_of_another_root_is_not_called_usable(root: Path, original: str) -> None:
    """With the original there, ninja is content with it and says that there is no work."""
    target, other = root.parent / "elsewhere", root.parent / "other"
    shutil.copytree(root, target, copy_function=shutil.copy2)
    shutil.copytree(root, other)
    if original == "there":
        assert work_at(target) == ""
        report = move(other, target)
    else:
        report = move(root, target)
    assert report.kept == (MODULE, str(Path(SOURCE).parent))
    assert f"it was built in {root}" in report.unusable[MODULE]
    assert report.unusable.keys() == {MODULE}


def test_a_module_that_a_package_has_outdated(root: Path) -> None:
    copies = [shutil.copytree(root, root.parent / name / "source") for name in ("a", "b")]
    target = root.parent / "elsewhere"
    move(root, target)
    age(header_of(target), HOUR_NS)
    report = move(copies[0], target)
    assert (report.kept, MODULE in report.same) == ((MODULE, str(Path(SOURCE).parent)), False)
    assert "older than most recent input" in report.unusable[MODULE]
    report = move(copies[1], target, replacing=True)
    assert (MODULE in report.installed, work_at(target)) == (True, "")


def test_a_current_module_is_kept_without_a_report(root: Path) -> None:
    target = root.parent / "elsewhere"
    first = shutil.copytree(root, root.parent / "again" / "source")
    move(root, target)
    report = move(first, target)
    assert set(report.same) == {MODULE, str(Path(SOURCE).parent)}
    assert (dict(report.unusable), dict(report.unverified)) == ({}, {})


def test_a_module_of_other_commands_is_in_doubt(root: Path) -> None:
    target = root.parent / "elsewhere"
    shutil.copytree(root, target)
    build_file = target / MODULE / "build.ninja"
    build_file.write_text(
        build_file.read_text().replace(str(root), str(target)).replace("-fPIC", "-fPIC -O1")
    )
    for path in (target / MODULE).iterdir():
        if path.name != "build.ninja":
            path.unlink()
    subprocess.run(["ninja", "-C", str(target / MODULE)], check=True, capture_output=True)
    report = move(root, target)
    assert report.unusable == {}
    assert "its build.ninja is not the fetched one's" in report.unverified[MODULE]


def test_judging_without_ninja(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = existing_entry_judge(FLASHINFER)
    assert judge(root, MODULE, None) == EntryVerdict()
    monkeypatch.setattr(existing_modules, "find_ninja", lambda: None)
    assert "ninja is not on PATH" in judge(root, MODULE, None).unverified_reason


# --- where ninja cannot be asked -----------------------------------------------------------------


@pytest.mark.parametrize("missing", ["ninja", "rapidhash"])
def test_without_ninja_or_its_hash(
    root: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    with monkeypatch.context() as context:
        if missing == "ninja":
            context.setattr(relocate, "find_ninja", lambda: None)
        else:
            context.setattr(relocate, "rapidhash_function", lambda: None)
        assert missing in FLASHINFER.roots[0].relocation_obstacle()
        report = move(root, root, keep_mtimes=False)
        assert missing in report.unverified[MODULE]
        assert work_at(root) == ""  # as it turns out
        reason = dropped_reason(move(root, root.parent / "elsewhere"))
    assert f"built in {root}" in reason
    assert missing in reason
    assert FLASHINFER.roots[0].relocation_obstacle() == ""


def test_an_older_log(root: Path) -> None:
    log = root / MODULE / ".ninja_log"
    log.write_text(log.read_text().replace("log v7", "log v5"))
    report = move(root, root)
    assert "version 5" in report.unverified[MODULE]
