"""Probes the identity of a cache on this node: versions, GPU, compile settings.

Begin with `identify.py`. This package is above `kinds/`; a kind names the values that its identity
needs.
"""
