"""Where the central server keeps records and ballots: the contracts, and modules for each backend.

Begin with `base.py`. `registry.py` finds a backend by its URL; `summary.py` and `listing.py` have
what a listing is made of. Each backend must pass tests/contract/test_metadata.py. Only `server/`
and `doctor/` use this room.
"""
