"""The server inside a source's process (threads): services, leases, admission, chunk sources.

Begin with `worker_server.py`, which listens on a port, then `artifact_service.py`, which serves
artifacts there. `artifacts/source/` announces them at the central server.
"""
