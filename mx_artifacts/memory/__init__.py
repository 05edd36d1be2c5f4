"""Memory that transfers use: budgets, bundle buffers, pools of registered slots, leases.

Begin with `leases.py` (which reader may read which region until when) and `pool.py`.
"""
