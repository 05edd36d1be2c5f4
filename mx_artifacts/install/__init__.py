"""Installs fetched entries into cache roots by rename, under a lock, a journal and a receipt.

Begin with `installer.py`. The steps of an install are in `staging/`, `plan.py` and `commit.py`;
`recover.py` recovers a root after a crash. This package neither discovers nor transfers.
"""
