"""Stores in which the central server keeps records and ballots: the contracts and each backend.

Begin with `base.py`. `registry.py` finds a backend by its URL. `summary.py` defines the rows of a
listing, and `listing.py` filters and orders them. Each backend must pass
tests/contract/test_metadata.py. Only `server/` and `doctor/` use this package.
"""
