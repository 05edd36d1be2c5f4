"""File work that knows no cache: access, durable writes, locks, renames, free space.

`install/` and `artifacts/` build on it. What is done to thousands of files at once is in `bulk/`.
"""
