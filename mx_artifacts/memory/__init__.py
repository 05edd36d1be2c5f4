"""Memory that transfers use: budgets, bundle buffers, pools of registered slots, leases.

Begin with `leases.py` (who may read what until when) and `pool.py`.
"""
