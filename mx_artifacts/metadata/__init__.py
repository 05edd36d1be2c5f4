"""Where the central server keeps its records: the contract, and one module for each backend.

Begin with `base.py`; `registry.py` finds a backend by its URL, and each backend must pass
tests/contract/test_metadata.py. Only `server/` uses it.
"""
