"""Use a central server with the reference package's client: publish, list, get, update.

Argument: server, identity. Answer: what each call returned.
"""

from __future__ import annotations

from typing import Any

import peer_common
from modelexpress import p2p_pb2
from modelexpress.client import MxClient
from modelexpress.metadata.source_id import compute_mx_source_id

WORKER_ID = "0badcafe"
RANK = 3


def listed(client: MxClient, **filters: Any) -> list[list[Any]]:
    """List sources, each as its id, worker, rank and accelerator."""
    instances = client.list_sources(**filters).instances
    return [
        [ref.mx_source_id, ref.worker_id, ref.worker_rank, ref.accelerator] for ref in instances
    ]


def main() -> None:
    given = peer_common.parameters()
    client, identity = peer_common.client(given), peer_common.identity(given)
    ready, stale = p2p_pb2.SOURCE_STATUS_READY, p2p_pb2.SOURCE_STATUS_STALE
    worker = p2p_pb2.WorkerMetadata(
        worker_rank=RANK,
        metadata_endpoint="10.0.0.1:5555",
        agent_name="agent",
        worker_grpc_endpoint="10.0.0.1:6555",
        accelerator="cuda",
        artifact_source=p2p_pb2.ArtifactSourceMetadata(
            artifact_id="ab" * 32, total_size=12, file_count=1, chunk_count=3, node_rank=1
        ),
    )
    mx_source_id = client.publish_metadata(identity, worker, WORKER_ID)
    before = listed(client, identity=identity, status_filter=ready)
    updated = client.update_status(mx_source_id, WORKER_ID, RANK, ready, source_load=0.5)
    by_identity = listed(client, identity=identity, status_filter=ready)
    everything = listed(client)
    found = client.get_metadata(mx_source_id, WORKER_ID)
    absent = client.get_metadata(mx_source_id, "00000000")
    unknown_updated = client.update_status(mx_source_id, "00000000", RANK, ready)
    marked_stale = client.update_status(mx_source_id, WORKER_ID, RANK, stale)
    after = listed(client, identity=identity, status_filter=ready)
    peer_common.answer(
        {
            "mx_source_id": mx_source_id,
            "own_mx_source_id": compute_mx_source_id(identity),
            "ready_before_update": before,
            "updated": updated,
            "ready": by_identity,
            "everything": everything,
            "found": found.found,
            "worker": {
                "worker_rank": found.worker.worker_rank,
                "metadata_endpoint": found.worker.metadata_endpoint,
                "agent_name": found.worker.agent_name,
                "worker_grpc_endpoint": found.worker.worker_grpc_endpoint,
                "accelerator": found.worker.accelerator,
                "status": found.worker.status,
                "node_rank": found.worker.artifact_source.node_rank,
                "artifact_id": found.worker.artifact_source.artifact_id,
            },
            "identity_kept": found.identity == identity,
            "absent_found": absent.found,
            "unknown_updated": unknown_updated,
            "marked_stale": marked_stale,
            "ready_after_stale": after,
        }
    )


if __name__ == "__main__":
    main()
