"""What unit tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.compiled import WAYS, done


@pytest.fixture(scope="module", params=WAYS)
def each_bulk(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a module's tests run with the compiled part, where it was built, and without it."""
    with done(request.param):
        yield
