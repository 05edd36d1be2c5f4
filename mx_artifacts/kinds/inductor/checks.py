"""Decides when files of torch.compile are committed: Inductor's files, and vLLM's around them.

Inductor renames its pickles and wrappers into place. Its shared libraries are linked in place,
under `locks/<key>.lock` in its root (docs/cache-facts.md, 2).
"""

from __future__ import annotations

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.kinds.entry_checks import binary_fault, empty_fault, json_fault, name_of
from mx_artifacts.kinds.inductor.torch_files import pickle_fault
from mx_artifacts.kinds.inductor.vllm_hash_directories import (
    hash_directory_fault,
    hash_directory_of,
)
from mx_artifacts.kinds.triton.group_files import is_key_directory
from mx_artifacts.kinds.triton.key_directories import key_directories, key_directory_fault

_PICKLES = frozenset({"fxgraph", "aotautograd"})


def fault_of(entry: EntryView) -> str | None:
    """Refuse a key directory, a vLLM tree or a file of Inductor that is not committed."""
    fault = binary_fault(entry)
    if fault is None and hash_directory_of(entry.path) == entry.path:
        return hash_directory_fault(entry) or _triton_fault(entry) or _files_fault(entry)
    if fault is None and is_key_directory(name_of(entry.path)):
        return key_directory_fault(entry, entry.path)
    return fault or _files_fault(entry)


def _triton_fault(tree: EntryView) -> str | None:
    # A kernel whose compiler was killed stays uncommitted for good, and one that is compiled now
    # is not the rest of the tree's fault; installing drops both.
    for directory in key_directories(tree):
        if directory != tree.path:
            fault = key_directory_fault(tree, directory, allow_uncommitted=True)
            if fault is not None:
                return f"{directory[len(tree.path) + 1 :]}: {fault}"
    return None


def _files_fault(entry: EntryView) -> str | None:
    for path in entry.files:
        *above, name = path.split("/")
        if _PICKLES & set(above):
            fault = pickle_fault(entry, [path])
        elif name.endswith(".py") and above and name[1:3] == above[-1]:
            fault = empty_fault(entry, [path])
        elif name.endswith(".best_config"):
            fault = json_fault(entry, path)
        elif name.endswith(".so") and above and entry.lock_is_held(_lock_of(above, name)):
            fault = "a process is building it"
        else:
            fault = None
        if fault is not None:
            return fault
    return None


def _lock_of(above: list[str], name: str) -> str:
    return "/".join((*above[:-1], "locks", name.partition(".")[0] + ".lock"))
