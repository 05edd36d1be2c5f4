"""Probes of identity values that several kinds of cache share: engine, torch, GPU, host, programs.

Begin with `base.py` (what a probe is) and `common.py` (the values that every kind may name). A
value that only one kind has is probed in that kind's module. Nothing here knows a kind.
"""
