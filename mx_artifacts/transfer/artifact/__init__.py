"""Transfers of artifacts: tables, checks of a source's claims, leases, compressed blocks.

Begin with `fetch.py`. This package uses the generic half of `transfer/`, which never imports it.
"""
