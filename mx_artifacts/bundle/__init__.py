"""Packs a directory tree into a deterministic tar in memory, and reads such a tar.

Begin with `pack.py` (source side) and `scan.py` (target side). This package handles entries and
members; the cache kind (`kinds/`) decides what an entry is.
"""
