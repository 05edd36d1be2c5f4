"""Programs that engines need on a node besides their caches; `mx-artifact doctor` checks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mx_artifacts.node.environment import Environment


@dataclass(frozen=True)
class Tool:
    """A program that an engine calls when it compiles, or even at a hit in its cache.

    Attributes:
        name: name of the check, such as "ninja".
        candidates: given the environment, returns names (looked for on PATH) and paths; the first
            one whose `--version` succeeds is the tool.
        lack: what the kinds cannot do without the tool; the end of a sentence that begins with the
            names of the kinds, such as "cannot hit without it".
        next_step: how to get it.
        is_required: whether no entry of the cache can be used without it. Then a missing tool is a
            failure, not a warning, when a node is checked for that kind.
    """

    name: str
    candidates: Callable[[Environment], Sequence[str]]
    lack: str
    next_step: str
    is_required: bool = False


def _nvcc(env: Environment) -> list[str]:
    homes = [env[name] for name in ("CUDA_HOME", "CUDA_PATH") if env.get(name)]
    return [*(f"{home}/bin/nvcc" for home in homes), "nvcc", "/usr/local/cuda/bin/nvcc"]


NINJA = Tool(
    "ninja",
    lambda env: ["ninja"],
    lack="cannot hit without it",
    next_step="install it (`pip install ninja`), the same version as on the source",
    is_required=True,
)
"""For kinds whose modules ninja judges: even a hit asks it."""
NVCC = Tool(
    "nvcc",
    _nvcc,
    lack="have its path or version in their keys",
    next_step="install the CUDA toolkit of the source and set CUDA_HOME as there",
)
"""The CUDA compiler, of $CUDA_HOME before the one on PATH."""
COMPILERS = (
    Tool(
        "C compiler",
        lambda env: [*filter(None, [env.get("CC")]), "cc", "gcc", "clang"],
        lack="probe with it, also beside a hit",
        next_step="install gcc, or set CC",
    ),
    Tool(
        "C++ compiler",
        lambda env: [*filter(None, [env.get("CXX")]), "c++", "g++", "clang++"],
        lack="probe with it, also beside a hit",
        next_step="install g++, or set CXX",
    ),
)
"""What compiles host code, of C and of C++."""
