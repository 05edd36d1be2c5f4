"""A publisher that announces and serves, in all honesty, a bundle that it should not have made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing

import pytest

from mx_artifacts.artifacts.protocol import ArtifactBundle
from mx_artifacts.artifacts.source.publish import publish_artifact_source
from mx_artifacts.artifacts.source.source_worker import SourceWorker
from mx_artifacts.bundle.seal import seal
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceType
from mx_artifacts.identity.identify import probe_identity
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.transport.base import Transport
from mx_artifacts.transport.registry import create_transport
from mx_artifacts.worker.serving_settings import ServingSettings
from tests.support import hostile
from tests.support.artifacts import in_memory_or_file
from tests.support.install_cases import fill, leftovers, picture
from tests.support.nodes import IDENTITY, KIND, Cluster

LOGICAL = f"/mx-artifacts/{KIND}/artifact.tar"
Serve = Callable[..., None]
GOOD = hostile.file(b"good", b"good") + hostile.END


@pytest.fixture(scope="module")
def transport() -> Iterator[Transport]:
    with closing(create_transport("stream", "hostile-source")) as transport:
        yield transport


@pytest.fixture
def hostile_source(cluster: Cluster, transport: Transport) -> Iterator[Serve]:
    """Give a function that serves bundles under their manifest paths, as they are."""
    identity = probe_identity(
        get_kind(KIND),
        model_name=cluster.model,
        overrides={**IDENTITY, "backend_framework": "vllm"},
        env=cluster.env,
    ).identity
    with ExitStack() as stack:

        def serve(
            bundles: Mapping[str, bytes], source_type: SourceType = SourceType.TILELANG_CACHE
        ) -> None:
            memory = {path: in_memory_or_file(content) for path, content in bundles.items()}
            manifest = seal(memory, source_type, 4096)
            bundle = ArtifactBundle(memory, manifest, manifest.artifact_id, ())
            client = CentralClient(cluster.env["MX_SERVER_ADDRESS"], timeout_seconds=30)
            stack.enter_context(closing(client))
            worker = SourceWorker(client, transport, ServingSettings(port=0))
            stack.callback(worker.close)
            published = publish_artifact_source(worker, bundle, identity)
            stack.callback(published.stop)

        yield serve


def assert_refused(cluster: Cluster, kind: str) -> None:
    root = fill(cluster.directory / "cold", {"mine": b"compiled here"})
    before = picture(root)
    code, error = cluster.fetch(root)
    assert code == error["exit_code"] == 12
    causes = {error["type"], *(a["error"]["type"] for a in error.get("attempts", ()))}
    assert kind in causes
    assert error["hint"]
    assert picture(root) == before
    assert leftovers(root) == []
    assert cluster.staged() == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("name: dot dot inside", "UnsafePathError"),
        ("kind: symbolic link", "UnsafePathError"),
        ("damage: last of a thousand", "UnsafePathError"),
        ("damage: not a tar", "BundleError"),
    ],
)
def test_a_hostile_bundle_with_an_honest_manifest(
    cluster: Cluster, hostile_source: Serve, name: str, kind: str
) -> None:
    hostile_source({LOGICAL: hostile.CORPUS[name]})
    assert_refused(cluster, kind)


@pytest.mark.parametrize("what", ["a bundle of no root", "no bundle of the root", "another kind"])
def test_a_manifest_of_something_else(cluster: Cluster, hostile_source: Serve, what: str) -> None:
    bundles, source_type = {
        "a bundle of no root": ({LOGICAL: GOOD, "/x/y.tar": GOOD}, SourceType.TILELANG_CACHE),
        "no bundle of the root": ({"/x/y.tar": GOOD}, SourceType.TILELANG_CACHE),
        "another kind": ({LOGICAL: GOOD}, SourceType.TRITON_CACHE),
    }[what]
    hostile_source(bundles, source_type)
    assert_refused(cluster, "ManifestInvalidError")
