"""Transfers of artifacts: tables, checks of what a source claims, leases, compressed blocks.

Begin with `fetch.py`. It is a client of the generic half of `transfer/`, which never imports it.
"""
