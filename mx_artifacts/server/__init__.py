"""The central server (asyncio): services over a metadata backend, reaper, health.

Begin with `app.py`. It sees no bytes of artifacts.
"""
