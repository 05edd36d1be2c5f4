"""Receipts: what was installed, from whom and when; written, found again, cached."""
