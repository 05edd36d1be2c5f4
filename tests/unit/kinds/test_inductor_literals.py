"""Literals may be read by several threads at once."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from mx_artifacts.kinds.inductor.literals import read_literal


def test_many_threads_at_once() -> None:
    """CPython 3.11 raised SystemError here without the lock."""
    document = {(n, f"g{n}"): (f"key{n}", [n] * 20) for n in range(50)}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            read = list(threads.map(read_literal, [repr(document)] * 200))
    finally:
        sys.setswitchinterval(interval)
    assert all(each == document for each in read)


@pytest.mark.parametrize("text", ["f()", "{", "a"])
def test_what_is_no_literal(text: str) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        read_literal(text)
