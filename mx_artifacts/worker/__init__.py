"""A source's server process part (threads): services, leases, admission, chunk sources.

Begin with `worker_server.py`. What is announced at the central server is in `artifacts/source/`.
"""
