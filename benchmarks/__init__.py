"""Programs that measure, each run as `python -m benchmarks.<name>`; they share `harness/`."""
