"""General file operations: access below a root, durable writes, locks, renames, free space.

This package does not know what a cache is. `install/` and `artifacts/` use it. Operations on
thousands of files at once are in `bulk/`.
"""
