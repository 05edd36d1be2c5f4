"""Receipts (what was installed, from which source, when): writes, finds and caches them."""
