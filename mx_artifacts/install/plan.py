"""Decide what of a staged tree moves into its root, without moving anything."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.files import existing_in, exists
from mx_artifacts.install.journal import EmptyRoot, Move
from mx_artifacts.install.staging.staging import StagedTree
from mx_artifacts.install.workspace.entries import ancestors
from mx_artifacts.install.workspace.workspace import TREE, Workspace

_REMOVED_MEANWHILE = "it was there and was removed during the install; install again"


@dataclass
class Plan:
    """The moves of one root, the entries that stay as they are, and those that cannot go in."""

    moves: list[Move] = field(default_factory=list)
    new_directories: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    blocked: dict[str, str] = field(default_factory=dict)
    empty_root: EmptyRoot | None = None


def plan_whole(workspace: Workspace, staged: StagedTree) -> Plan | None:
    """Plan one rename of the whole tree, which readers see at once; None when that cannot be.

    It can when the root is absent, or is an empty directory whose owner and mode the staged tree
    can take on.
    """
    if workspace.is_inside or staged.for_comparison or staged.unchanged:
        return None
    empty_root = None
    with workspace.root_if_any() as root:
        if root is not None:
            if root.names():
                return None
            found = root.status()
            empty_root = EmptyRoot(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)
            if not _becomes(staged, empty_root):
                return None
        elif workspace.above.has(workspace.root.name):
            return None  # a file, say, which entry by entry is in the way
    inode = staged.inode_of("")
    return Plan(moves=[Move("", inode, replaces=False)], empty_root=empty_root)


def _becomes(staged: StagedTree, root: EmptyRoot) -> bool:
    """Give a staged tree, which no other user can reach yet, the owner and mode of a root."""
    descriptor = staged.place.held.open(TREE, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fchown(descriptor, root.uid, root.gid)
        os.fchmod(descriptor, root.mode)
    except PermissionError:
        return False
    finally:
        os.close(descriptor)
    return True


def plan_entries(root: Directory | None, staged: StagedTree, replace: bool) -> Plan:
    """Plan one rename for each entry that is new or a repair, or, with `replace`, for every entry.

    `root` is None where there is none any more.

    Raises:
        UnsafePathError: a symbolic link is on the way to an entry.
    """
    plan = Plan()
    planned: set[str] = set()
    for entry in (staged_entry.entry for staged_entry in staged.entries):
        found = exists(root, entry) if root is not None else False
        if found is None:
            plan.blocked[entry] = "the root has a file where this entry needs a directory"
        elif found and not replace and entry not in staged.repairs:
            plan.kept.append(entry)
        elif entry in staged.for_comparison:
            plan.blocked[entry] = _REMOVED_MEANWHILE
        else:
            plan.moves.append(Move(entry, staged.inode_of(entry), replaces=found))
            missing = [
                above
                for above in ancestors(entry)
                if above not in planned and (root is None or not root.has(above))
            ]
            planned.update(missing)
            plan.new_directories.extend(missing)
    unchanged = [each.entry for each in staged.unchanged]
    existing = existing_in(root, unchanged) if root is not None else set()
    plan.kept += [entry for entry in unchanged if entry in existing]
    plan.blocked |= dict.fromkeys((e for e in unchanged if e not in existing), _REMOVED_MEANWHILE)
    return plan
