"""What mx_artifacts/bulk does in C, for tests that want it so, and for those that want Python's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from mx_artifacts.bulk import library as bulk
from mx_artifacts.bulk.library import Absence, library

WAYS = ("compiled", "python")


@contextmanager
def done(way: str) -> Iterator[None]:
    """Let this process do it in one of the WAYS; skip the test where it was not built."""
    if way == "python":
        with _in_python():
            yield
        return
    if missing := bulk.absence():
        pytest.skip(f"the compiled part is not used: {missing.why}")
    assert library() is not None
    yield


@contextmanager
def _in_python() -> Iterator[None]:
    left_out = Absence("a test does without it", "")
    try:
        with patch.object(bulk, "absence", lambda: left_out):
            library.cache_clear()
            assert library() is None
            yield
    finally:
        library.cache_clear()
