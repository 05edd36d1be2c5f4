"""Programs that fill real caches without a GPU, and, run again, tell whether they hit.

They are run as programs in fresh processes, never imported by a test.
"""
