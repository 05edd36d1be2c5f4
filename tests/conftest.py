"""What holds for every test."""

from __future__ import annotations

import pytest
from hypothesis import settings

# Tests assert behaviour, not times: on a loaded machine any single example may take long.
settings.register_profile("house", deadline=None)
settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kinds",
        metavar="NAMES",
        help='play the whole matrix of tests/kinds for these real caches: "all", "triton,tvm_ffi"',
    )
