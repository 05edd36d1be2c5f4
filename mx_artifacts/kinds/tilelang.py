"""TileLang's kernels: `<root>/<version>/<platform-arch>/{kernels,autotuner}/<key>/…`, and
`<root>/<version>/cuda-binaries/<sha256>/…`.

`manifest.json` in an entry has the size and SHA-256 of every file, and TileLang checks them on
load. Loading runs executable.so.
"""

from __future__ import annotations

import re

from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.core.identity import SourceType
from mx_artifacts.kinds.base import LITTER, CacheKind, RootRule
from mx_artifacts.kinds.roots import below_home, first_of, from_variable

_SHELVES = frozenset({"kernels", "autotuner", "cuda-binaries"})
_SHA256 = re.compile(r"[0-9a-f]{64}")


def entry_of(path: str) -> str:
    """Map a path to its kernel's directory, which every layout so far names by a hash."""
    parts = path.split("/")
    for position, part in enumerate(parts):
        if _SHA256.fullmatch(part) or (position and parts[position - 1] in _SHELVES):
            return "/".join(parts[: position + 1])
    return path


KIND = CacheKind(
    name="tilelang",
    source_type=SourceType.TILELANG_CACHE,
    title="TileLang kernels",
    roots=(
        RootRule(
            "", first_of(from_variable("TILELANG_CACHE_DIR"), below_home(".tilelang", "cache"))
        ),
    ),
    pack=PackRules(exclude=LITTER, entry_of=entry_of),
    identity_fields=("backend_framework", "cuda_version", "gpu_arch"),
    extra_parameters=("tilelang_version",),
    strict_parameters=("machine", "libc"),
)
