"""Compute the source ids that the reference's engine loaders look for.

Argument: model_name, engine (the engine's fields), facts (what its own functions find). Answer: by
engine, the id of each source type.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import peer_common
import torch
from modelexpress.metadata import artifact_lifecycle
from modelexpress.metadata.source_id import compute_mx_source_id

SOURCE_TYPES = {"vllm": (3, 4, 5, 6, 7, 8), "sglang": (3, 4, 5, 6, 7, 8, 9)}


def main() -> None:
    given = peer_common.parameters()
    facts = given["facts"]
    torch.__version__ = facts["torch_version"]
    torch.version.cuda = facts["cuda_version"]
    artifact_lifecycle.gpu_arch = lambda device_id: facts["gpu_arch"]
    for name in facts.keys() & vars(artifact_lifecycle).keys() - {"gpu_arch"}:
        setattr(artifact_lifecycle, name, lambda value=facts[name]: value)
    identity = SimpleNamespace(model_name=given["model_name"], **given["engine"])
    context = SimpleNamespace(device_id=0, identity=identity)
    ids: dict[str, dict[str, str]] = {}
    for engine, source_types in SOURCE_TYPES.items():
        loader = import_module(f"modelexpress.engines.{engine}.artifacts")
        setattr(loader, f"_{engine}_version", lambda: facts["backend_framework_version"])
        ids[engine] = {
            str(number): compute_mx_source_id(loader._artifact_identity(context, number))
            for number in source_types
        }
    peer_common.answer({"ids": ids})


if __name__ == "__main__":
    main()
