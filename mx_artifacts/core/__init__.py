"""Values and rules without I/O: identity, manifest, chunks, checksums, groups, records.

Begin with `identity.py` and `manifest.py`. No threads, files, network or protobuf here (a contract
holds this), so any room above may import it.
"""
