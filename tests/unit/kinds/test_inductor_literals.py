"""The strings of a literal are found as Python itself reads them, in little memory."""

from __future__ import annotations

import ast
import pprint
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.kinds.inductor import literals
from mx_artifacts.kinds.inductor.literals import (
    MAX_DEPTH,
    LiteralString,
    strings_of,
    with_strings,
)

ATOMS = st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text(max_size=90)
KEYS = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)
VALUES = st.recursive(
    ATOMS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)
CONTAINERS = st.dictionaries(KEYS, VALUES, max_size=5) | st.lists(VALUES, max_size=5)


def in_order(value: Any, is_key: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the strings of `value`, and whether each is a dict's key or part of one."""
    if isinstance(value, str):
        yield value, is_key
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from in_order(key, True)
            yield from in_order(item, is_key)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from in_order(item, is_key)


@given(CONTAINERS)
def test_the_strings_are_those_of_the_value(value: Any) -> None:
    found = strings_of(repr(value))
    assert [(each.value, each.is_key) for each in found] == list(in_order(value))


@given(CONTAINERS)
def test_pretty_printed_as_vllm_does(value: Any) -> None:
    text = pprint.PrettyPrinter(indent=4).pformat(value)  # which sorts, and splits long strings
    found = strings_of(text)
    assert sorted((e.value, e.is_key) for e in found) == sorted(in_order(value))
    for each in found:
        assert ast.literal_eval(f"({text[each.start : each.end]})") == each.value


@given(CONTAINERS, st.text(max_size=9))
def test_strings_are_replaced_and_nothing_else(value: Any, new: str) -> None:
    text = repr(value)
    found = strings_of(text)
    assert with_strings(text, found, {}) == text
    changed = with_strings(text, found, {each.value: new for each in found})
    assert [each.value for each in strings_of(changed)] == [new] * len(found)


@given(st.text(alphabet="[](){},:'\"\\ \n1N-.eonxu0", max_size=14))
def test_accepted_literals_have_the_value_that_python_gives_them(text: str) -> None:
    try:
        found = strings_of(text)
    except ValueError:
        return
    assert [(e.value, e.is_key) for e in found] == list(in_order(ast.literal_eval(text)))


def test_strings_side_by_side_are_one() -> None:
    assert strings_of("['a'\n \"b\", 'c']") == [
        LiteralString("ab", 1, 9, False),
        LiteralString("c", 11, 14, False),
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "'a'", "f()", "{", "a", "[1", "[1]]", "[1] [2]", "[1 2]", "[,]", "{1}", "{1:}"),
        *("{1: 2, 3}", "{[]: 1}", "{({},): 1}", "[1}", "['a' 1]", "[1 'a']", "['a", "['a\n']"),
        *(
            "['\\q']",
            "['\\x4']",
            "[b'a']",
            "[f'{1}']",
            "[1+1]",
            "[1_0]",
            "[01]",
            "['\0']",
            "[Nonesuch]",
        ),
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
    ],
)
def test_text_that_is_no_literal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"literal|index"):
        strings_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" + "1," * 2_000_000 + "]",
        "[" + "[]," * 2_000_000 + "]",
        "[" + "'\\\\'," * 3_000_000 + "]",
        "['" + "\\\\" * 100_000 + "']",
        "(" * 6_000_000,
    ],
    ids=["numbers", "lists", "strings", "escapes", "brackets"],
)
def test_an_index_of_megabytes_takes_little_memory(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(literals, "MAX_TOKENS", 20_000)  # tracing takes long
    monkeypatch.setattr(literals, "MAX_STRINGS", 10_000)
    tracemalloc.start()
    try:
        with suppress(ValueError):
            strings_of(text)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 16 << 20
