"""FlashInfer's CuTe kernels: `<module>_<arch>_cute_dsl/{<kernel>.o, …, meta.json}`.

meta.json says, for all kernels beside it, what compiled them and from which sources. FlashInfer
uses a kernel if it would compile the same; otherwise it removes the directory. Each file appears by
rename, a kernel before the meta.json that commits it. So kernels of two nodes may be in one
directory only if their meta.json is the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.core.json_objects import parse_object
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.regular_file import read_regular_file
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.kinds.base import FixupReport
from mx_artifacts.kinds.entry_checks import empty_fault, names_in

_SUFFIX = "_cute_dsl"
_META = "meta.json"

MAX_META_BYTES = 64 * 1024
"""Maximum size of a meta.json [bytes]. Real ones have three short strings."""

_MAX_NAMES = 3


def is_cute_module(name: str) -> bool:
    """Return whether a directory of cached_ops/ contains CuTe kernels, according to its name."""
    return name.endswith(_SUFFIX)


def cute_module_fault(entry: EntryView) -> str | None:
    """Refuse a directory that is not committed. Its lock does not matter: nothing is in place."""
    names = names_in(entry, entry.path)
    if _META not in names:
        return f"it has no {_META}, so its compiler has not committed it"
    objects = [f"{entry.path}/{name}" for name in names if name.endswith(".o")]
    if not objects:
        return "it has no compiled kernel"
    return empty_fault(entry, objects)


def match_cute_modules(staged: Path, root: Path) -> FixupReport:
    """Leave out each module that exists in `root` already with another meta.json.

    Its kernels can add up with those only that are of the same compiler and sources.
    """
    metas = sorted(staged.glob(f"*/*/cached_ops/*{_SUFFIX}/{_META}"))
    if not metas:
        return FixupReport()
    dropped: dict[str, str] = {}
    try:
        with open_directory(root) as directory:
            for meta in metas:
                module = meta.parent.relative_to(staged).as_posix()
                reason = _difference(meta, directory, module)
                if reason:
                    shutil.rmtree(meta.parent)
                    dropped[module] = f"{root / module} {reason}; remove it, and install again"
    except (FileNotFoundError, NotADirectoryError):
        pass  # nothing is there
    return FixupReport(dropped=dropped)


def _difference(meta: Path, root: Directory, module: str) -> str:
    """Say how the module of `root` differs from that of `meta`, or "" if it does not."""
    try:
        names_there = root.names(module)
    except OSError:
        return ""  # no directory
    ours = _parsed(lambda: read_regular_file(meta, MAX_META_BYTES))
    theirs = _parsed(lambda: root.read(f"{module}/{_META}", MAX_META_BYTES))
    if not theirs:
        return f"has no {_META}, so it is unknown what its kernels are" if names_there else ""
    names = [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]
    listed = ", ".join(map(shown, names[:_MAX_NAMES]))
    return f"was compiled with another {listed}" if names else ""


def _parsed(read: Callable[[], bytes]) -> dict[str, object]:
    try:
        return parse_object(read(), _META)
    except (OSError, ValueError):
        return {}
