"""Which trees are plain at first sight: none with which a second look finds fault."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mx_artifacts.bulk.paths import are_plain_tree
from mx_artifacts.bundle.member_paths import MemberPaths
from mx_artifacts.bundle.names import MAX_DEPTH, MAX_PART_BYTES, path_fault
from mx_artifacts.errors import UnsafePathError
from tests.support.compiled import done


def tree(*paths: str) -> bool:
    """Return whether these are plain; those that end with "/" are directories."""
    return are_plain_tree(
        [path.rstrip("/") for path in paths], [path[-1:] == "/" for path in paths]
    )


PLAIN = [
    (),
    ("a",),
    ("a/", "a/b", "a/c/", "a/c/d", "b"),
    ("A.b/", "A.b/x+y=z@1-2", "a.c", "B/", "c/", "c/_"),
    ("0/", *(f"{'0/' * depth}" for depth in range(2, MAX_DEPTH + 1))),
    ("x" * MAX_PART_BYTES,),
]
NOT_PLAIN = [
    ("b", "a"),
    ("a", "a"),
    ("a", "A"),
    ("a/", "a"),
    ("a", "a/b"),
    ("a/b",),
    ("a/", "b", "a/c"),
    ("a/", "a/b", "a/B"),
    ("a/", "a/b/", "a/b/c", "a/b"),
    ("a/", "A/", "A/b"),
    ("ab/", "a/b"),
    ("",),
    ("/a",),
    ("a//b",),
    ("a/", "a/../b"),
    (".a",),
    ("a/", "a/.b"),
    ("a b",),
    ("é",),
    ("a\\b",),
    ("a\0b",),
    ("a\n",),
    ("x" * (MAX_PART_BYTES + 1),),
    ("0/", *(f"{'0/' * depth}" for depth in range(2, MAX_DEPTH + 2))),
]


@pytest.mark.parametrize("paths", PLAIN)
def test_plain_trees(paths: tuple[str, ...]) -> None:
    with done("compiled"):
        assert tree(*paths)


@pytest.mark.parametrize("paths", NOT_PLAIN)
def test_trees_that_need_a_second_look(paths: tuple[str, ...]) -> None:
    with done("compiled"):
        assert not tree(*paths)


def test_without_the_compiled_part_all_need_one() -> None:
    with done("python"):
        assert not tree("a")


def is_good(paths: list[str], are_dirs: list[bool]) -> bool:
    """Tell what comes of the second look."""
    known = MemberPaths(1000, 100_000)
    try:
        for path, is_dir in zip(paths, are_dirs, strict=True):
            known.add(path, is_dir)
    except UnsafePathError:
        return False
    return not any(map(path_fault, paths))


part = st.text(alphabet="aAbB._-/é", max_size=5)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(part, st.booleans()), max_size=8), st.booleans())
def test_paths_that_the_fast_test_accepts_are_valid(
    members: list[tuple[str, bool]], ordered: bool
) -> None:
    if ordered:
        members.sort(key=lambda member: re.split("/", member[0]))
    paths, are_dirs = [path for path, _ in members], [is_dir for _, is_dir in members]
    with done("compiled"):
        if are_plain_tree(paths, are_dirs):
            assert is_good(paths, are_dirs)
