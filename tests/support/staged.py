"""What a target has staged once a source's artifact has come, without a network between them."""

from __future__ import annotations

from dataclasses import replace

from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint, StagedArtifact
from mx_artifacts.artifacts.target.root_receiver import RootReceiver
from mx_artifacts.artifacts.tarred import TarredP2PArtifactTransfer
from mx_artifacts.bundle.index import map_bundle
from tests.support.packing import SETTLED


def received(
    source: TarredP2PArtifactTransfer,
    target: TarredP2PArtifactTransfer,
    *,
    with_index: bool = True,
) -> StagedArtifact:
    """Return what `target` has after it received all that `source` would serve."""
    bundle = replace(source, clock=SETTLED).prepare_source()
    receiver = RootReceiver(target._wanted_bundles(), target.mx_source_type)
    index = bundle.index_by_file() if with_index else {}
    maps = {
        file.file_index: map_bundle(index[file.file_index], file.size, file.checksum)
        for file in bundle.manifest.files
        if index
    }
    for span in receiver.begin(bundle.manifest, maps):
        content = bundle.bundles[bundle.manifest.files[span.file_index].path].view
        assert not span.damage(content[span.offset : span.end])
        receiver.write(span, content[span.offset : span.end])
    receiver.finish()
    bundle.close()
    endpoint = ArtifactSourceEndpoint("s", "w", 0, "h:1", bundle.artifact_id, 0)
    return StagedArtifact(receiver.stagings, bundle.manifest, endpoint)
