"""The version, separate from the package's public names, so that every layer may import it."""

from __future__ import annotations

__version__ = "0.1.0"
