"""Reads over plain TCP. Neither side trusts the other: no address of a peer is used as a pointer.

A source listens on one port. A peer that has an agent's token may read ranges of the regions that
were registered before the token was made. A peer can write nothing. Begin with `transport.py`.
"""
