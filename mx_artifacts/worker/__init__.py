"""A source's server process part (threads): services, leases, admission, chunk sources.

Begin with `worker_server.py`, which has a port, then `artifact_service.py`, which serves on it.
What is announced at the central server is in `artifacts/source/`.
"""
