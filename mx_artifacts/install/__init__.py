"""Installs fetched entries into cache roots by rename, under a lock, a journal and a receipt.

Begin with `installer.py`; the stages are in `staging/`, `plan.py` and `commit.py`, what is left
after a crash is recovered by `recover.py`. It neither discovers nor transfers.
"""
