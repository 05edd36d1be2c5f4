"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# Tests assert behaviour, not times: on a loaded machine any single example may take long.
settings.register_profile("house", deadline=None)
settings.load_profile("house")
