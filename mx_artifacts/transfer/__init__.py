"""Target side of a transfer: reads extents of anything from several sources into a sink.

Begin with `engine.py`, then `base.py` (extents, sources, sinks) and `state.py`. This half knows no
artifacts (a contract holds this); `artifact/` is the half that does.
"""
