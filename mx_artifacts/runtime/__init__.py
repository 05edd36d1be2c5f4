"""This process: clock, deadlines, threads, pauses of the garbage collector, rate limits.

This package has nothing to do with caches, files or networks. Any room may import it.
"""
