"""Target side of a transfer: reads extents of any data from several sources into a sink.

Begin with `engine.py`, then `base.py` (extents, sources, sinks) and `state.py`. This half does not
know artifacts (an import contract checks this); the half in `artifact/` does.
"""
