"""Events that the rooms emit and that progress bars, logs and metrics receive.

Begin with `events.py`. This package imports only `errors`.
"""
