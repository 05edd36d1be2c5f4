"""Cache kinds: what a cache's entries are, where it lies, what of it fits another node.

Begin with `base.py` (the contract) and `deep_gemm.py` (the shortest kind); `registry.py` lists all.
The values of an identity are probed in `identity/`; nothing here installs or transfers.
"""
