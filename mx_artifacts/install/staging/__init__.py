"""Fetched bytes written beside the root they will be renamed into, or resumed from there."""
