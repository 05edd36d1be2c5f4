"""What the peer scripts share. They run in the reference package's own environment.

Each takes one argument, a JSON object, and prints one JSON object on its last line of stdout.
The package's public names are used as an engine's loader uses them; only the accelerator is ours,
since there is no GPU.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

from modelexpress import p2p_pb2
from modelexpress.client import MxClient
from modelexpress.metadata.artifact_transfer import ArtifactCacheRoot, TarredP2PArtifactTransfer
from modelexpress.nixl_transfer import NixlTransferManager


class HostMemory:
    """An accelerator backend without an accelerator: registered memory is DRAM."""

    name = "cpu"
    torch_device_type = "cpu"
    nixl_mem_type = "DRAM"

    def set_device(self, device_id: int) -> None:
        """Do nothing: there is one host."""

    def synchronize(self, device_id: int | None = None) -> None:
        """Do nothing: host memory is written when it is written."""

    def supports_pool_reg(self) -> bool:
        return False

    def supports_vmm(self) -> bool:
        return False


def parameters() -> dict[str, Any]:
    """Return the script's argument."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    return given


def answer(result: dict[str, Any]) -> None:
    """Print the script's answer."""
    print(json.dumps(result), flush=True)


def client(given: dict[str, Any]) -> MxClient:
    """Return the package's client of the central server under test."""
    return MxClient(given["server"])


def manager() -> NixlTransferManager:
    """Return a started agent of the package's transfer manager."""
    made = NixlTransferManager(
        f"peer-{uuid.uuid4().hex[:8]}", device_id=0, accelerator_backend=HostMemory()
    )
    made.initialize()
    return made


def identity(given: dict[str, Any]) -> p2p_pb2.SourceIdentity:
    """Return the identity as the wire has it."""
    return p2p_pb2.SourceIdentity(**given["identity"])


def transfer(given: dict[str, Any]) -> TarredP2PArtifactTransfer:
    """Return the package's transfer over the given roots, the primary one first."""
    roots = tuple(
        ArtifactCacheRoot(name=name, source_root=Path(path), target_root=Path(path))
        for name, path in given["roots"].items()
    )
    return TarredP2PArtifactTransfer(
        name="interop",
        mx_source_type=given["identity"]["mx_source_type"],
        roots=roots,
        bundle_root=Path(given["bundle_root"]),
    )
