"""Decides when a module that ninja built (FlashInfer's nvcc modules, TVM-FFI's) is committed.

Neither the compiler nor the linker writes atomically, and ninja's own logs decide whether the
module is current; all of it happens under one lock (docs/cache-facts.md, 4 and 5).
"""

from __future__ import annotations

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.kinds.entry_checks import missing_fault, names_in

NINJA_STATE = (".ninja_log", ".ninja_deps")


def built_module_fault(entry: EntryView, lock: str) -> str | None:
    """Refuse a module directory that is not built, or is being built under the flock of `lock`."""
    names = names_in(entry, entry.path)
    libraries = [name for name in names if name.endswith(".so")]
    objects = [name for name in names if name.endswith(".o")]
    if not libraries:
        return "not built: it has no library"
    if not objects:
        return "its object files are missing, so that ninja would build it again"
    fault = missing_fault(entry, entry.path, (*NINJA_STATE, *libraries, *objects))
    if fault is not None:
        return fault
    newest_object = max(entry.files[f"{entry.path}/{name}"].mtime_ns for name in objects)
    for name in libraries:
        if entry.files[f"{entry.path}/{name}"].mtime_ns < newest_object:
            return (
                f"{name} is older than its object files: not linked again, or copied without times"
            )
    if entry.lock_is_held(lock):
        return "a process is building it"
    return None
