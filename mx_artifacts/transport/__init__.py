"""Data plane: transports that read registered memory of a peer.

A transport handles addresses and lengths; it does not know artifacts. Begin with `base.py`.
`registry.py` finds a transport by name. Each transport must pass tests/contract/test_transport.py.
"""
