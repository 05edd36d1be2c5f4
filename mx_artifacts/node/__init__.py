"""This machine: environment, installed packages, CUDA driver, mounts, free memory, network.

These functions are cheap: they import nothing large, and a function that must load a driver loads
it in a child process. `identity/` decides which of these values belong to an artifact's identity.
"""
