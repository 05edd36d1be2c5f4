"""Data plane: transports that read registered memory of a peer.

A transport knows addresses and lengths, never artifacts. Begin with `base.py`; `registry.py` finds
a transport by name, and each transport must pass tests/contract/test_transport.py.
"""
