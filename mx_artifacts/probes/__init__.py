"""Probes of identity values that several kinds of cache share: engine, torch, GPU, host, programs.

Begin with `base.py` (what a probe is) and `common.py` (the values that every kind may name). If
only one kind has a value, that kind's module probes it. This package does not know any kind.
"""
