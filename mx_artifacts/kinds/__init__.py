"""Cache kinds: which entries a cache has, where its roots are, and which entries fit another node.

Begin with `base.py` (the contract) and `deep_gemm.py` (the shortest kind); `registry.py` lists all.
`identity/` probes the values of an identity. Nothing in this package installs or transfers.
"""
