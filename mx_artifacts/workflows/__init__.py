"""What a node does with cache kinds: fetch, publish, follow, find installs, explain, check.

The two front doors below know one kind at a time. The command line calls these functions, and so
may loaders and sidecars: `mx_artifacts` exports those that they need. They report by what they
return and by events; they print nothing, know no option, and start no thread. Begin with
`fetch_kinds.py` or `publish_kinds.py`; `selected_kind.py` is what all of them take. Nothing in the
library imports this room.
"""
