"""TileLang's kernels: `<root>/<version>/<platform-arch>/{kernels,autotuner}/<key>/…`, and
`<root>/<version>/cuda-binaries/<sha256>/…`.

`manifest.json` in an entry has the size and SHA-256 of every file, and TileLang checks them on
load. Loading runs executable.so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.core.identity import SourceType
from mx_artifacts.kinds.base import NEVER_PACKED, CacheKind, FixupReport, RootRule
from mx_artifacts.kinds.entry_checks import binary_fault, empty_fault, names_in, read_json
from mx_artifacts.kinds.root_rules import below_home, first_of, from_variable
from mx_artifacts.probes.packages import package_version

_SHELVES = frozenset({"kernels", "autotuner", "cuda-binaries"})
_STAGING = ".staging"
_SHA256 = re.compile(r"[0-9a-f]{64}")


def entry_of(path: str) -> str:
    """Map a path to its kernel's directory, which every layout so far names by a hash."""
    parts = path.split("/")
    for position, part in enumerate(parts):
        if _SHA256.fullmatch(part) or (position and parts[position - 1] in _SHELVES):
            return "/".join(parts[: position + 1])
    return path


def fault_of(entry: EntryView) -> str | None:
    """Refuse an entry whose files are not those that its manifest, or its metadata, promises."""
    try:
        fault = _promise_fault(entry)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return str(error) if isinstance(error, ValueError) else "its manifest is damaged"
    return fault or empty_fault(entry, entry.files) or binary_fault(entry)


def _promise_fault(entry: EntryView) -> str | None:
    shelf = entry.path.split("/")[-2:-1]
    names = names_in(entry, entry.path)
    if "manifest.json" in names:
        files = read_json(entry, f"{entry.path}/manifest.json")["files"]
        for name, meta in files.items():
            fault = _content_fault(entry, name, meta)
            if fault is not None:
                return fault
    elif shelf == ["kernels"]:
        return "it has no manifest.json, so TileLang has not committed it"
    elif shelf == ["cuda-binaries"]:
        kernels = [name for name in names if name.startswith("kernel.")]
        if "metadata.json" not in names or not kernels:
            return "it lacks its binary or metadata.json"
        meta = read_json(entry, f"{entry.path}/metadata.json")
        return _content_fault(entry, kernels[0], meta)
    return None


def _content_fault(entry: EntryView, name: str, meta: Mapping[str, Any]) -> str | None:
    path = f"{entry.path}/{name}"
    if path not in entry.files:
        return f"{shown(name)} is missing"
    if entry.files[path].size != meta["size"]:
        return f"{name} is not as long as its manifest says"
    return None if entry.sha256(path) == meta["sha256"] else f"{name} is damaged (SHA-256)"


def make_staging_directories(staged: Path, root: Path) -> FixupReport:
    """Make the directories that TileLang makes when it is imported.

    In a cache that another user owns it may not, and then does not start.
    """
    for kernels in staged.glob("*/*/kernels"):
        with suppress(FileExistsError):  # a file of that name is TileLang's to complain of
            (kernels.parent / _STAGING).mkdir()
    return FixupReport()


KIND = CacheKind(
    name="tilelang",
    source_type=SourceType.TILELANG_CACHE,
    title="TileLang kernels",
    roots=(
        RootRule(
            "", first_of(from_variable("TILELANG_CACHE_DIR"), below_home(".tilelang", "cache"))
        ),
    ),
    pack=PackRules(exclude=NEVER_PACKED, entry_of=entry_of, fault_of=fault_of),
    identity_fields=("backend_framework", "cuda_version", "gpu_arch"),
    extra_parameters=("tilelang_version",),
    strict_parameters=("machine", "libc"),
    identity_values={"tilelang_version": package_version("tilelang")},
    atomic_entries=True,
    fixups=(make_staging_directories,),
)
