"""The life cycle of a cache artifact, by the specification's names, over the rooms below.

Begin with `protocol.py` and `tarred.py`; `source/`, `target/` and `seeding/` are its sides. The
front doors `publisher.py` and `fetcher.py` are above it.
"""
