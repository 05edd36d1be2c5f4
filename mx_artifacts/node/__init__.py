"""This machine: environment, installed packages, CUDA driver, mounts, free memory, network.

Asking is cheap: nothing heavy is imported, and what must load a driver does so in a child process.
What of it belongs to an artifact's identity is decided in `identity/`.
"""
