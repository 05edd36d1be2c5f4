"""Probes the identity of a cache on this node: versions, GPU, compile settings.

Begin with `identify.py`. It is above `kinds/`, which names the values that an identity needs.
"""
