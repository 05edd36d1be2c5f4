"""Publish with the reference package, and serve until SIGTERM.

Argument: server, identity, roots, bundle_root. Answer, once it serves: mx_source_id, worker_id,
artifact_id, chunks.
"""

from __future__ import annotations

import signal
import uuid

import peer_common
from modelexpress.metadata.artifact_transfer import publish_artifact_source
from modelexpress.metadata.worker_server import WorkerGrpcServer


def main() -> None:
    # Blocked before any thread starts, so that sigwait below is who gets it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    given = peer_common.parameters()
    transfer = peer_common.transfer(given)
    bundle = transfer.prepare_source()
    nixl_manager = peer_common.manager()
    server = WorkerGrpcServer([], None, agent_name=nixl_manager.agent_name)
    server.start()
    source = publish_artifact_source(
        peer_common.client(given),
        transfer,
        bundle,
        peer_common.identity(given),
        nixl_manager,
        uuid.uuid4().hex[:8],
        worker_grpc_server=server,
        host="127.0.0.1",
        accelerator="",
    )
    peer_common.answer(
        {
            "mx_source_id": source.endpoint.mx_source_id,
            "worker_id": source.endpoint.worker_id,
            "artifact_id": source.endpoint.artifact_id,
            "chunks": len(bundle.manifest.chunks),
        }
    )
    signal.sigwait({signal.SIGTERM})
    source.stop()
    server.stop()


if __name__ == "__main__":
    main()
