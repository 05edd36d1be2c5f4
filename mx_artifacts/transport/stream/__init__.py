"""Reads over plain TCP, for which neither side trusts the other: no address of a peer is followed.

A source listens on one port; whoever has an agent's token may read ranges of the regions that
were registered before the token was made, and nothing can be written. Begin with `transport.py`.
"""
