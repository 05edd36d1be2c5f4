"""Stubs that speak core types: of the central server, and of a worker with our extension.

Begin with `central.py` and `worker.py`.
"""
