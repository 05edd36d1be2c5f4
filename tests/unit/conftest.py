"""What unit tests share."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from mx_artifacts.bulk import library as bulk


@pytest.fixture(scope="module", params=["compiled", "python"])
def each_bulk(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a module's tests run with the compiled part, where it was built, and without it."""
    if request.param == "compiled":
        yield
        return
    with patch.object(bulk, "absence", lambda: "a test does without it"):
        bulk.library.cache_clear()
        yield
    bulk.library.cache_clear()
