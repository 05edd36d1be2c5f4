"""Files grouped into the entries that are installed, kept or dropped whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.bundle.rules import each_file, first_parts
from mx_artifacts.errors import InstallError, UnsafePathError
from mx_artifacts.install.workspace.entries import ancestors, group_entries, leaves_of

parts = st.sampled_from(["a", "b", "ab", "a.b", "a-b"])
paths = st.lists(parts, min_size=1, max_size=4).map("/".join)


@given(st.lists(paths, unique=True, max_size=12), st.integers(1, 3))
def test_each_leaf_is_in_the_entry_that_the_rule_names(leaves: list[str], depth: int) -> None:
    entry_of = first_parts(depth)
    # A file and a directory of one name cannot be in one tree.
    leaves = [leaf for leaf in leaves if not set(ancestors(leaf)) & set(leaves)]
    groups = group_entries(leaves, entry_of)
    assert list(groups) == sorted(groups)
    assert sorted(leaf for each in groups.values() for leaf in each) == sorted(leaves)
    assert all(entry_of(leaf) == entry for entry, each in groups.items() for leaf in each)


def test_an_entry_whose_name_begins_with_another_entrys_name_is_separate() -> None:
    groups = group_entries(["k1.x/b", "k1/a", "k1-y", "k1/c"], first_parts(1))
    expected = {"k1": ["k1/a", "k1/c"], "k1-y": ["k1-y"], "k1.x": ["k1.x/b"]}
    assert list(groups.items()) == list(expected.items())


@pytest.mark.parametrize("leaf", [".mx-artifacts", ".mx-artifacts/lock", ".mx-artifacts.root/x"])
def test_the_installer_s_own_names_are_refused(leaf: str) -> None:
    with pytest.raises(UnsafePathError, match="name that the installer itself uses"):
        group_entries(["a", leaf], first_parts(1))
    group_entries([f"a/{leaf}"], first_parts(1))


@pytest.mark.parametrize("entry", ["", "b", "a/b", "a/x/y/z", "a/xy"])
def test_a_rule_that_names_no_ancestor_is_refused(entry: str) -> None:
    with pytest.raises(InstallError, match="is not above it"):
        group_entries(["a/x/y"], lambda _leaf: entry)


def test_an_entry_within_an_entry_is_refused() -> None:
    rule = {"a/x": "a", "a/b/y": "a/b"}
    with pytest.raises(InstallError, match="'a/b' an entry within 'a'"):
        group_entries(rule, rule.__getitem__)


def test_ancestors_are_listed_from_the_outermost_to_the_innermost() -> None:
    assert ancestors("a/b/c") == ["a", "a/b"]
    assert ancestors("a") == []


def test_leaves_are_files_and_directories_without_anything_in_them() -> None:
    directories = ["a", "a/b", "a/c", "d", "e"]
    assert leaves_of(["a/b/f", "e/f"], directories) == ["a/b/f", "e/f", "a/c", "d"]
    assert group_entries(leaves_of(["x"], ["d"]), each_file) == {"d": ["d"], "x": ["x"]}
