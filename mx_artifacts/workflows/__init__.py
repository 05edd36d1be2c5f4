"""What a node does with cache kinds: fetch, publish, follow, find installs, explain, check.

The two front doors, which are below this package, handle one kind at a time. The command line calls
the functions of this package. Loaders and sidecars may call them, too: `mx_artifacts` exports those
that they need. The functions report by return values and events; they print nothing, know no
options, and start no threads. Begin with `fetch_kinds.py` or `publish_kinds.py`. All of them take
the values of `selected_kind.py`. Nothing in the library imports this package.
"""
