"""A directory tree packed as a deterministic tar in memory, and read back.

Begin with `pack.py` (source side) and `scan.py` (target side). It knows entries and members; what
an entry is, is up to the cache kind (`kinds/`).
"""
