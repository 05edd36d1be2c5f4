"""The central server (asyncio): services that use a metadata backend, the reaper, health.

Begin with `app.py`. The bytes of artifacts never go through this server.
"""
