import errno
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from mx_artifacts.bulk.listing import Listing, list_directories
from mx_artifacts.bundle.rules import PackRules, first_parts
from mx_artifacts.bundle.tree import SourceTree, scan_tree
from mx_artifacts.errors import BundleError
from mx_artifacts.kinds.base import NEVER_PACKED
from tests.support.trees import Tree, write_tree

pytestmark = pytest.mark.usefixtures("each_bulk")


def paths(tree: SourceTree) -> list[str]:
    return [member.path for member in tree.members]


def reasons(tree: SourceTree) -> dict[str, str]:
    return {skip.path: skip.reason for skip in tree.skipped}


def test_files_and_directories_sorted_by_parts(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a-b": b"", "a": {"x": b"1", "empty": {}}, "B": b""})
    tree = scan_tree(tmp_path, PackRules())
    assert paths(tree) == ["B", "a", "a/empty", "a/x", "a-b"]
    assert [member.path for member in tree.members if member.is_dir] == ["a", "a/empty"]
    assert tree.skipped == ()


def test_a_root_that_is_a_link_is_followed(tmp_path: Path) -> None:
    write_tree(tmp_path / "real", {"x": b""})
    (tmp_path / "root").symlink_to("real")
    assert paths(scan_tree(tmp_path / "root", PackRules())) == ["x"]


@pytest.mark.parametrize("make", ["nothing", "file", "dangling link", "link to itself"])
def test_a_root_that_is_no_directory(tmp_path: Path, make: str) -> None:
    root = tmp_path / "root"
    if make == "file":
        root.write_text("")
    elif make == "dangling link":
        root.symlink_to("nowhere")
    elif make == "link to itself":
        root.symlink_to("root")
    with pytest.raises(BundleError, match="nothing to publish") as caught:
        scan_tree(root, PackRules())
    assert "--root" in caught.value.hint()


def test_links_inside_the_root_are_packed_as_their_files(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", {"d": {"x": b"content"}, "e": {}})
    (root / "relative").symlink_to("d/x")
    (root / "absolute").symlink_to(root / "d" / "x")
    (root / "e" / "chain").symlink_to("../relative")
    tree = scan_tree(root, PackRules())
    assert paths(tree) == ["absolute", "d", "d/x", "e", "e/chain", "relative"]
    assert {member.source for member in tree.members if not member.is_dir} == {"d/x"}
    assert tree.skipped == ()


def test_absolute_links_through_a_linked_root(tmp_path: Path) -> None:
    write_tree(tmp_path / "real", {"x": b""})
    (tmp_path / "root").symlink_to("real")
    (tmp_path / "real" / "link").symlink_to(tmp_path / "root" / "x")
    assert paths(scan_tree(tmp_path / "root", PackRules())) == ["link", "x"]


def test_other_links_are_skipped_and_counted(tmp_path: Path) -> None:
    write_tree(tmp_path, {"outside": b"", "root": {"d": {"x": b""}, "tmp.1": {"half": b""}}})
    root = tmp_path / "root"
    (root / "to_nothing").symlink_to("nowhere")
    (root / "to_itself").symlink_to("to_itself")
    (root / "out_relative").symlink_to("../outside")
    (root / "out_absolute").symlink_to("/etc/passwd")
    (root / "to_directory").symlink_to("d")
    (root / "to_root").symlink_to(".")
    (root / "to_excluded").symlink_to("tmp.1/half")
    (root / "d" / "up").symlink_to("..")
    tree = scan_tree(root, PackRules(exclude=("tmp.*",)))
    assert paths(tree) == ["d", "d/x"]
    assert reasons(tree) == {
        "to_nothing": "link to nothing",
        "to_itself": "link to nothing",
        "out_relative": "link out of the cache root",
        "out_absolute": "link out of the cache root",
        "to_directory": "link to something that is not a file",
        "to_root": "link to something that is not a file",
        "to_excluded": "link to an excluded file",
        "d/up": "link to something that is not a file",
        "tmp.1": "excluded by 'tmp.*'",
    }


def test_hard_links_are_two_files(tmp_path: Path) -> None:
    write_tree(tmp_path, {"x": b"content"})
    os.link(tmp_path / "x", tmp_path / "y")
    assert paths(scan_tree(tmp_path, PackRules())) == ["x", "y"]


def test_sockets_and_fifos_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path, {"x": b""})
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)  # socket paths are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        tree = scan_tree(tmp_path, PackRules())
    assert paths(tree) == ["x"]
    assert set(reasons(tree)) == {"fifo", "socket"}


def test_litter_is_excluded_and_what_only_looks_like_it_is_not(tmp_path: Path) -> None:
    kept: Tree = {"block.cubin": b"", "locked": {"clock": b""}, "lock.py": b"", ".committed": b""}
    litter: Tree = {
        "x.lock": b"",
        "lock": b"",
        ".ninja_lock": b"",
        "tmp.pid_123_ab": {"x": b""},
        ".staging_x": {"x": b""},
        "a_CxxBuild": {"x": b""},
        "__pycache__": {"x": b""},
    }
    write_tree(tmp_path, {**kept, **litter, "ext": {"lock": b"", "x.so": b""}})
    tree = scan_tree(tmp_path, PackRules(exclude=NEVER_PACKED))
    assert paths(tree) == [
        ".committed",
        "block.cubin",
        "ext",
        "ext/x.so",
        "lock.py",
        "locked",
        "locked/clock",
    ]
    assert set(reasons(tree)) == {*litter, "ext/lock"}


def test_patterns_with_a_slash_match_the_whole_path(tmp_path: Path) -> None:
    write_tree(tmp_path, {"tmp": {"x": b""}, "ops": {"tmp": {"x": b""}, "a": {"b.o": b""}}})
    tree = scan_tree(tmp_path, PackRules(exclude=("ops/tmp", "*/*.o")))
    assert paths(tree) == ["ops", "ops/a", "tmp", "tmp/x"]
    assert reasons(tree) == {
        "ops/tmp": "excluded by 'ops/tmp'",
        "ops/a/b.o": "excluded by '*/*.o'",
    }


def test_names_of_255_bytes(tmp_path: Path) -> None:
    write_tree(tmp_path, {"n" * 255: b"", "ü" * 127: b""})
    assert len(paths(scan_tree(tmp_path, PackRules()))) == 2


def test_names_that_cannot_be_carried_take_their_entry_with_them(tmp_path: Path) -> None:
    write_tree(tmp_path, {"good": {"x": b""}, "bad": {"x": b""}, "worse": {"sub": {"x": b""}}})
    (tmp_path / "bad" / os.fsdecode(b"\xff.so")).write_bytes(b"")
    (tmp_path / "worse" / "new\nline").mkdir()
    (tmp_path / os.fsdecode(b"\xfe")).write_bytes(b"")
    tree = scan_tree(tmp_path, PackRules(entry_of=first_parts(1)))
    assert paths(tree) == ["good", "good/x"]
    assert reasons(tree) == {
        "bad": "bad/\\xff.so: name is not UTF-8",
        "worse": "worse/new\\nline: name holds a NUL or another control character",
        "\\xfe": "name is not UTF-8",
    }


def test_twins_by_case_or_unicode_form(tmp_path: Path) -> None:
    write_tree(tmp_path, {"Key": {"x": b""}, "kEY": {"y": b""}, "é": b"", "e\u0301": b"", "z": b""})
    tree = scan_tree(tmp_path, PackRules())
    assert paths(tree) == ["Key", "Key/x", "e\u0301", "z"]
    assert reasons(tree)["kEY"] == "differs from 'Key' only by case or Unicode form"
    assert len(tree.skipped) == 2


def test_directories_too_deep_are_left_out(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 70)
    deep.mkdir(parents=True)
    (deep / "x").write_bytes(b"")
    (tmp_path / "y").write_bytes(b"")
    tree = scan_tree(tmp_path, PackRules())
    assert paths(tree)[-1] == "y"
    assert len(tree.members) == 65
    assert [skip.reason for skip in tree.skipped] == ["path is deeper than 64 directories"]


def test_an_unreadable_directory_takes_its_entry_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path, {"good": {"x": b""}, "bad": {"x": b"", "closed": {"y": b""}}})

    def refuse(root: int, directories: Sequence[str]) -> list[Listing]:
        # root, as whom tests may run, can list everything
        refused = Listing((), (), errno.EACCES)
        listings = list_directories(root, directories)
        return [
            refused if path.endswith("closed") else listing
            for path, listing in zip(directories, listings, strict=True)
        ]

    monkeypatch.setattr("mx_artifacts.bundle.tree.list_directories", refuse)
    tree = scan_tree(tmp_path, PackRules(entry_of=first_parts(1)))
    assert paths(tree) == ["good", "good/x"]
    assert reasons(tree) == {"bad": "bad/closed: cannot be listed (Permission denied)"}


def test_the_fault_in_the_last_directory_of_an_entry_is_reported(tmp_path: Path) -> None:
    odd = {"odd\1": b""}
    write_tree(tmp_path, {"e": {"a": odd, "b": {"c": odd, "K": b"", "k": b""}, **odd}, "f": odd})
    tree = scan_tree(tmp_path, PackRules(entry_of=first_parts(1)))
    control = "name holds a NUL or another control character"
    assert reasons(tree) == {"e": f"e/odd\\x01: {control}", "f": f"f/odd\\x01: {control}"}
    (tmp_path / "e" / "odd\1").unlink()
    tree = scan_tree(tmp_path, PackRules(entry_of=first_parts(1)))
    assert reasons(tree)["e"] == "e/b/k: differs from 'K' only by case or Unicode form"


@pytest.mark.parametrize("keep_mtimes", [True, False])
@pytest.mark.parametrize("seconds", [9_300_000_000, -9_300_000_000])
def test_a_time_that_no_bundle_can_hold(tmp_path: Path, keep_mtimes: bool, seconds: int) -> None:
    """Where times count. What an older directory has does not."""
    write_tree(tmp_path, {"a": {"x": b"1", "y": b"2"}, "b": {"x": b""}})
    os.utime(tmp_path / "a" / "x", (seconds, seconds))
    os.utime(tmp_path / "b", (seconds, seconds))
    tree = scan_tree(tmp_path, PackRules(entry_of=first_parts(1), keep_mtimes=keep_mtimes))
    if (tmp_path / "a" / "x").stat().st_mtime != seconds:
        pytest.skip("this file system keeps no such times")
    if keep_mtimes:
        assert reasons(tree) == {"a": "a/x: modification time is out of range"}
        assert paths(tree) == ["b", "b/x"]
    else:
        assert reasons(tree) == {}
        assert paths(tree) == ["a", "a/x", "a/y", "b", "b/x"]
