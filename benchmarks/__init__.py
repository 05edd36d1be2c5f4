"""Benchmark programs. Run each with `python -m benchmarks.<name>`; they share `harness/`."""
