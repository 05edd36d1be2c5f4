"""This process: clock, deadlines, threads, pauses of the garbage collector, rate limits.

It knows nothing of caches, files or networks. Any room may import it.
"""
