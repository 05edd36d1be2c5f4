"""The life cycle of a cache artifact, with the specification's names; it uses the rooms below.

Begin with `protocol.py` and `tarred.py`. `source/` publishes, `target/` fetches, `seeding/` does
both at once. The front doors `publisher.py` and `fetcher.py` are above this package.
"""
