"""The matrix of `make test-kinds`: every real cache in every way it can arrive on a node."""
