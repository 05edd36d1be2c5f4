"""The fix-up of Triton's group files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mx_artifacts.errors import RelocationError, UnsafePathError
from mx_artifacts.kinds.triton.group_files import MAX_GROUP_FILE_BYTES, relocate_triton_groups
from tests.support.kind_trees import KEY, OTHER_KEY

CHILDREN = ("kern.cubin", "kern.json")
ROOT = Path("/dst/cache")
MTIME_NS = 1_600_000_000_123_456_789


def make_group(staged: Path, key: str = KEY, source: str = "/src/.triton/cache") -> Path:
    """Write a key directory as its sender had it below `source`; return the group file."""
    directory = staged / key
    directory.mkdir(parents=True)
    for name in CHILDREN:
        (directory / name).write_text("{}")
    paths = {name: f"{source}/{Path(key).name}/{name}" for name in CHILDREN}
    return write_group(directory, json.dumps({"child_paths": paths}))


def write_group(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    group = directory / "__grp__kern.json"
    group.write_bytes(text.encode())
    os.utime(group, ns=(MTIME_NS, MTIME_NS))
    return group


def child_paths(group: Path) -> dict[str, str]:
    paths: dict[str, str] = json.loads(group.read_text())["child_paths"]
    return paths


# --- rewriting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [KEY, "k1", f"triton/0/{KEY}", f"0a1b2c3d4e/r/triton_cache/{KEY}"])
@pytest.mark.parametrize("source", ["/src/.triton/cache", "/a/b/c/d", "relative/cache", "../cache"])
def test_children_are_below_the_final_root(tmp_path: Path, key: str, source: str) -> None:
    group = make_group(tmp_path, key, source)
    report = relocate_triton_groups(tmp_path, ROOT)
    assert (report.rewritten, report.dropped) == (1, {})
    assert child_paths(group) == {name: f"/dst/cache/{key}/{name}" for name in CHILDREN}


def test_only_the_path_strings_change(tmp_path: Path) -> None:
    old = f"/src/{KEY}/kern.cubin"
    text = (
        '{ "other":[1.50, "\\u00e9 é"],\r\n\t"child_paths" : {"kern.cubin" :"%s" }, "z": "%s x"}\n'
    )
    group = write_group(tmp_path / KEY, text % (old, old))
    (tmp_path / KEY / "kern.cubin").write_text("")
    relocate_triton_groups(tmp_path, ROOT)
    new = f"/dst/cache/{KEY}/kern.cubin"
    assert group.read_bytes() == (text % (new, old)).encode()


def test_mtime_and_mode_stay(tmp_path: Path) -> None:
    group = make_group(tmp_path)
    group.chmod(0o440)
    relocate_triton_groups(tmp_path, ROOT)
    status = group.stat()
    assert (status.st_mtime_ns, status.st_mode & 0o777) == (MTIME_NS, 0o440)
    assert sorted(p.name for p in group.parent.iterdir()) == [group.name, *CHILDREN]


@pytest.mark.parametrize("source", ["/src/é\U0001f600", '/src/"quoted" \\n', "/src/a b"])
def test_paths_that_json_escapes(tmp_path: Path, source: str) -> None:
    group = make_group(tmp_path, source=source)
    assert relocate_triton_groups(tmp_path, ROOT).rewritten == 1
    assert child_paths(group) == {name: f"/dst/cache/{KEY}/{name}" for name in CHILDREN}


@pytest.mark.parametrize("spelled", ["/src/é", "\\/src\\/\\u00e9", "/src/\\u00E9"])
def test_paths_that_the_sender_escaped_its_own_way(tmp_path: Path, spelled: str) -> None:
    text = '{"child_paths": {"kern.cubin": "' + f"{spelled}/{KEY}/kern.cubin" + '"}}'
    group = write_group(tmp_path / KEY, text)
    (tmp_path / KEY / "kern.cubin").write_text("")
    relocate_triton_groups(tmp_path, ROOT)
    assert child_paths(group) == {"kern.cubin": f"/dst/cache/{KEY}/kern.cubin"}


def test_a_root_with_odd_characters(tmp_path: Path) -> None:
    group = make_group(tmp_path)
    relocate_triton_groups(tmp_path, Path('/dst/"é" \udce9'))
    assert child_paths(group)["kern.json"] == f'/dst/"é" \udce9/{KEY}/kern.json'


def test_the_same_root_changes_nothing(tmp_path: Path) -> None:
    group = make_group(tmp_path, source=str(ROOT))
    before = group.read_bytes(), group.stat().st_ino
    assert relocate_triton_groups(tmp_path, ROOT).rewritten == 0
    assert (group.read_bytes(), group.stat().st_ino) == before


def test_directories_without_a_group_are_left_alone(tmp_path: Path) -> None:
    for path in (f"{KEY}/cuda_utils.so", f"{OTHER_KEY}/k.autotune.json", "fxgraph/x/y.cubin"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("x")
    report = relocate_triton_groups(tmp_path, ROOT)
    assert (report.rewritten, report.dropped) == (0, {})
    assert len([p for p in tmp_path.rglob("*") if p.is_file()]) == 3


# --- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("kern.cubin", "/etc/passwd"),
        ("kern.cubin", f"/src/{KEY}/../../etc/passwd"),
        ("kern.cubin", f"/src/{OTHER_KEY}/kern.cubin"),
        ("kern.cubin", f"/src/{KEY}/other.cubin"),
        ("kern.cubin", f"/src/{KEY}/sub/kern.cubin"),
        ("kern.cubin", "kern.cubin"),
        ("kern.cubin", ""),
        ("..", f"/src/{KEY}/.."),
        ("", f"/src/{KEY}/"),
        ("../kern.cubin", f"/src/{KEY}/../kern.cubin"),
        ("sub/kern.cubin", f"/src/{KEY}/sub/kern.cubin"),
        ("/etc/passwd", "/etc/passwd"),
        ("kern\0.cubin", f"/src/{KEY}/kern\0.cubin"),
        ("kern\n.cubin", f"/src/{KEY}/kern\n.cubin"),
        ("kern\ud800.cubin", f"/src/{KEY}/kern\ud800.cubin"),
    ],
)
def test_a_child_outside_its_key_directory_or_with_an_odd_name_is_refused(
    tmp_path: Path, name: str, path: str
) -> None:
    text = json.dumps({"child_paths": {name: path}})
    write_group(tmp_path / KEY, text)
    with pytest.raises(UnsafePathError, match=KEY):
        relocate_triton_groups(tmp_path, ROOT)


def test_a_group_in_the_root_itself_is_refused(tmp_path: Path) -> None:
    group = make_group(tmp_path)
    with pytest.raises(RelocationError, match="itself a Triton key directory"):
        relocate_triton_groups(group.parent, ROOT)


# --- dropped -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"child_paths": {"kern.cubin": "/src',
        "[]",
        "null",
        '{"children": {}}',
        '{"child_paths": ["kern.cubin"]}',
        '{"child_paths": {"kern.cubin": 7}}',
        "[" * 200_000,
        " " * MAX_GROUP_FILE_BYTES + "{}",
    ],
    ids=["empty", "cut", "list", "null", "other-key", "no-map", "number", "deep", "long"],
)
def test_a_damaged_group_is_dropped_with_its_whole_entry(tmp_path: Path, text: str) -> None:
    whole = make_group(tmp_path, OTHER_KEY)
    damaged = make_group(tmp_path)
    write_group(damaged.parent, text)
    report = relocate_triton_groups(tmp_path, ROOT)
    assert list(report.dropped) == [KEY]
    assert "damaged" in report.dropped[KEY]
    assert not damaged.parent.exists()
    assert report.rewritten == 1
    assert child_paths(whole)["kern.json"] == f"/dst/cache/{OTHER_KEY}/kern.json"


def test_bytes_that_are_no_utf8_are_a_damaged_group(tmp_path: Path) -> None:
    make_group(tmp_path).write_bytes(b'{"child_paths": {"\xff": "/"}}')
    assert "not UTF-8" in relocate_triton_groups(tmp_path, ROOT).dropped[KEY]


@pytest.mark.parametrize("name", CHILDREN)
def test_a_group_with_a_missing_child_is_dropped(tmp_path: Path, name: str) -> None:
    key = f"triton/0/{KEY}"
    group = make_group(tmp_path, key)
    (group.parent / name).unlink()
    report = relocate_triton_groups(tmp_path, ROOT)
    assert report.dropped == {key: f"{group.name} lists {name}, which is missing"}
    assert not group.parent.exists()


@pytest.mark.parametrize("inner_is_whole", [True, False])
def test_groups_inside_a_dropped_entry_are_removed_with_it(
    tmp_path: Path, inner_is_whole: bool
) -> None:
    outer = make_group(tmp_path)
    inner = make_group(tmp_path, f"{KEY}/sub/{OTHER_KEY}")
    other = make_group(tmp_path, f"z/{OTHER_KEY}")
    for damaged in [outer] if inner_is_whole else [outer, inner]:
        write_group(damaged.parent, "{")
    report = relocate_triton_groups(tmp_path, ROOT)
    assert next(iter(report.dropped)) == KEY
    assert not (tmp_path / KEY).exists()
    assert list(report.touched or ()) == [f"z/{OTHER_KEY}/{other.name}"]
    assert report.rewritten == 1


def test_a_kernel_without_its_group_file_was_not_committed(tmp_path: Path) -> None:
    group = make_group(tmp_path)
    group.unlink()
    report = relocate_triton_groups(tmp_path, ROOT)
    assert "not committed" in report.dropped[KEY]
    assert not group.parent.exists()
