"""Target side of a transfer: which source reads which bytes, in which order, and when one is lost.

Begin with `engine.py`. It writes no files: a receiver takes what was verified.
"""
