"""Clients of the central server and of a worker; they take and return core types.

Begin with `central.py` and `worker.py`.
"""
