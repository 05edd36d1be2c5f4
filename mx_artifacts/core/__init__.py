"""Values and rules without I/O: identity, manifest, chunks, checksums, groups, records.

Begin with `identity.py` and `manifest.py`. This package uses no threads, files, network or protobuf
(an import contract checks this), so any room above may import it.
"""
