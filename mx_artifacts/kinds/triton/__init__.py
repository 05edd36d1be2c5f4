"""Triton's cache: key directories, and group files that name paths."""
