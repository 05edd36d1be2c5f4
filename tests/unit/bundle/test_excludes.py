"""What is left out by its name: parts of paths, whole paths, and what lies below them."""

from __future__ import annotations

import pytest

from mx_artifacts.bundle.excludes import Excludes

EXCLUDES = Excludes(("*.lock", "tmp", "logs/*.txt", "[ab]?"))


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("x.lock", "*.lock"),
        ("deep/down/x.lock", "*.lock"),
        ("tmp", "tmp"),
        ("x/tmp", "tmp"),
        ("a1", "[ab]?"),
        ("logs/x.txt", "logs/*.txt"),
        ("logs/deep/x.txt", "logs/*.txt"),  # fnmatch's * takes slashes
        ("x.locked", None),
        ("tmp2", None),
        ("TMP", None),
        ("other/logs/x.txt", None),  # the whole path
        ("x.txt", None),
        ("tmp/x", None),  # by what is above it, which `covers` tells
        ("abc", None),
    ],
)
def test_a_path_is_excluded_by_the_pattern_that_it_fits_itself(
    path: str, pattern: str | None
) -> None:
    assert EXCLUDES.pattern_for(path, name_of(path)) == pattern
    assert EXCLUDES.find_any([name_of(path)], [path]) is (pattern is not None)


@pytest.mark.parametrize(
    ("path", "is_covered"),
    [
        ("tmp/x/y", True),
        ("x/tmp/y", True),
        ("x.lock/y", True),
        ("logs/x.txt/y", True),
        ("x/y", False),
        ("logs/y", False),
    ],
)
def test_what_lies_below_something_excluded_is_covered(path: str, is_covered: bool) -> None:
    assert EXCLUDES.covers(path) is is_covered


def test_one_of_many_is_found() -> None:
    paths = [f"d/x{number}" for number in range(10)]
    assert not EXCLUDES.find_any(map(name_of, paths), paths)
    paths.insert(5, "logs/y.txt")
    assert EXCLUDES.find_any(map(name_of, paths), paths)


def test_without_patterns_nothing_is_excluded() -> None:
    nothing = Excludes(())
    assert nothing.pattern_for("", "") is None
    assert not nothing.find_any(["x"], ["x"])
    assert not nothing.covers("x/y")


def test_the_first_of_several_patterns_is_named() -> None:
    assert Excludes(("*.so", "x.*")).pattern_for("x.so", "x.so") == "*.so"
    assert Excludes(("d/x.*", "x.*")).pattern_for("d/x.so", "x.so") == "x.*", "by its part first"
