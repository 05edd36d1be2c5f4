"""What the benchmark programs share: nodes, trees, networks, rounds, reports."""
