"""Triton's cache: key directories, and group files that contain paths."""
