"""What the nodes of a benchmark move: a cache of which kind, and what else they need for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Moved:
    """A cache, as the nodes that move it know it.

    `kind` is the product's, and `stated` are identity values that cannot be found out on a machine
    without a GPU. The nodes run with `python`, and beside what is ours have the `variables`; None:
    those of this process.
    """

    kind: str
    stated: Mapping[str, str]
    python: str = sys.executable
    variables: Mapping[str, str] | None = None

    def as_argument(self) -> str:
        """Return what a node's command line says of it."""
        return json.dumps({"kind": self.kind, "stated": dict(self.stated)})


GENERATED = Moved(
    "triton",
    {
        "backend_framework": "vllm",
        "cuda_version": "13.0",
        "gpu_arch": "sm90",
        "triton_version": "3.8.0",
        "triton_key": "benchmark",
    },
)
"""A tree of benchmarks/harness/tree.py."""


class Identities:
    """The kind and the identities that `Moved.as_argument` told a node."""

    def __init__(self, argument: str) -> None:
        told = json.loads(argument)
        self._kind: str = told["kind"]
        self._stated: Mapping[str, str] = told["stated"]

    def of(self, model: str) -> tuple[Any, Any]:
        """Return the kind, and its identity for a model's name."""
        from mx_artifacts.identity.identify import probe_identity
        from mx_artifacts.kinds.registry import get_kind

        kind = get_kind(self._kind)
        return kind, probe_identity(kind, model_name=model, overrides=self._stated).identity
