"""Checks of a node before it publishes or fetches. Begin with `base.py`."""
