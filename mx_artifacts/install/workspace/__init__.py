"""Workspaces: a directory beside a cache root with its lock, staging area, journal and receipts."""
