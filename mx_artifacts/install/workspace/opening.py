"""Finds the workspace of a root, or makes it beside the root or in it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mx_artifacts.errors import UnsafePathError, UnusablePlaceError
from mx_artifacts.filesystem.access import DIRECTORY_MODE, Access
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.files import place_directory
from mx_artifacts.filesystem.resolved_path import (
    ResolvedPath,
    is_open_to_others,
    resolve_path,
    trusted_users,
)
from mx_artifacts.filesystem.writable import check_place, name_max_bytes
from mx_artifacts.install.workspace.workspace import (
    PREFIX,
    RECEIPTS,
    Workspace,
    untrusted_place,
)
from mx_artifacts.node.mounts import mount_table


def check_target(root: Path) -> Path:
    """Refuse a cache root into which nothing could be installed. Changes nothing.

    Returns the directory that exists: `root` with links resolved, or the nearest one above it.

    Raises:
        UnusablePlaceError: it, or what is above it, is no directory; it is `/`; it cannot have
            that name; this user may not write there.
    """
    hint = "name another directory with --root"
    existing = check_place(root, "a cache root", hint)
    resolved = Path(os.path.realpath(root))
    if not resolved.name:
        raise UnusablePlaceError(
            f"{root} cannot be a cache root: all other directories are in it", hint=hint
        )
    sibling_name = _sibling_name(resolved)
    if existing != resolved and len(os.fsencode(sibling_name)) > name_max_bytes(existing):
        raise UnusablePlaceError(
            f"{root} cannot be a cache root: {sibling_name!r}, which the installer would create "
            "beside it, is too long a name",
            hint="create the cache root, so that the installer can work inside it, or use a "
            "shorter name",
        )
    return existing


def open_workspace(root: Path) -> Workspace:
    """Find the workspace of `root` and make its directories (and the root's parents) as needed.

    The caller closes it.

    Raises:
        UnusablePlaceError: nothing can be installed into `root`.
        UnsafePathError: something else is where the workspace should, or a stranger's link
            leads to the root.
        FileNotFoundError: another process removed part of it meanwhile.
        OSError: a directory cannot be made.
    """
    check_target(root)
    with ExitStack() as on_failure:
        found = resolve_path(root)  # the root may be a link; nothing below it may
        with found.directory as here:
            above = _make_parents(found) if found.missing else parent_of(here)
            on_failure.callback(above.close)
            place, name, is_exposed = above, _sibling_name(found.path), found.is_exposed
            if not found.missing and not _goes_beside(found, above):
                place, name = here, PREFIX
                is_exposed |= is_open_to_others(here.status())
            held = _make_workspace(place, name)
            on_failure.callback(held.close)
        is_exposed |= is_open_to_others(held.status())
        workspace = Workspace(found.path, held.path, above, held, is_exposed)
        workspace.make_directories()
        on_failure.pop_all()
        return workspace


def _sibling_name(root: Path) -> str:
    return f"{PREFIX}.{root.name}"


def parent_of(directory: Directory) -> Directory:
    """Return the directory that `directory` is in, to be closed.

    Raises FileNotFoundError when it is there no more by its name.
    """
    descriptor = os.open(
        "..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory.descriptor
    )
    above = Directory(descriptor, directory.path.parent)
    try:
        if above.inode_of(directory.path.name) == directory.status().st_ino:
            return above
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory.path))
    except BaseException:
        above.close()
        raise


def _make_workspace(place: Directory, name: str) -> Directory:
    place.make(name, DIRECTORY_MODE)
    try:
        return place.enter(name)
    except (NotADirectoryError, UnsafePathError):
        raise untrusted_place(place.path / name) from None


def _make_parents(found: ResolvedPath) -> Directory:
    """Create the missing directories above a root, such that the engine's user can use them, too.

    An engine may need its own files beside the cache there. Returns the directory that will contain
    the root; the caller closes it.
    """
    above = found.directory.enter("")
    if len(found.missing) == 1:
        return above
    access = Access.of(above.status())
    try:
        name, workshop = found.directory.make_private(f"{PREFIX}-")
        with workshop:
            for part in found.missing[:-1]:
                place_directory(above.descriptor, part, access.apply, workshop)
                outer, above = above, above.enter(part)
                outer.close()
        os.rmdir(name, dir_fd=found.directory.descriptor)
        return above
    except BaseException:
        above.close()
        raise


@contextmanager
def found_workspaces(root: Path) -> Iterator[list[Directory]]:
    """Yield the workspaces of `root` that exist, without making anything.

    There are two when the root became a mount point, or writable by others, between two installs.
    Raises UnsafePathError when a stranger's link leads to the root.
    """
    with ExitStack() as stack:
        workspaces: list[Directory] = []
        with suppress(OSError):  # absent, or a name too long
            found = resolve_path(root)
            here = stack.enter_context(found.directory)
            if found.path.name and len(found.missing) <= 1:  # "/" can be no cache root
                at = None if found.missing else here
                above = here if at is None else stack.enter_context(parent_of(here))
                owners = trusted_users() | {(at or above).status().st_uid}
                for place, name in ((above, _sibling_name(found.path)), (at, PREFIX)):
                    with suppress(OSError, UnsafePathError):
                        if place is not None:
                            held = stack.enter_context(place.enter(name))
                            if held.status().st_uid in owners and held.has(RECEIPTS):
                                workspaces.append(held)
        yield workspaces


@contextmanager
def receipt_directories(root: Path) -> Iterator[list[Directory]]:
    """Yield where receipts of installs into `root` are; as `found_workspaces`."""
    with found_workspaces(root) as workspaces, ExitStack() as stack:
        directories = []
        for workspace in workspaces:
            with suppress(OSError, UnsafePathError):
                directories.append(stack.enter_context(workspace.enter(RECEIPTS)))
        yield directories


def has_workspace(root: Path) -> bool:
    """Return whether something was, or is being, installed into `root`. Changes nothing."""
    with found_workspaces(root) as found:
        return bool(found)


def is_mount_point(directory: Directory, above: Directory) -> bool:
    """Return whether a directory is a mount point, or on another file system than `above` it.

    `os.path.ismount` does not see a bind mount within one file system, as Kubernetes makes them.
    A btrfs subvolume is no mount point, but renames cannot cross its border either.
    """
    if directory.status().st_dev != above.status().st_dev:
        return True
    mounts = mount_table()
    path = directory.path
    return any(mount.point == path for mount in mounts) if mounts else os.path.ismount(path)


def _goes_beside(root: ResolvedPath, above: Directory) -> bool:
    """Return whether the workspace of an existing root goes into the directory `above` it."""
    name = _sibling_name(root.path)
    if is_mount_point(root.directory, above):
        return False
    if len(os.fsencode(name)) > os.pathconf(above.descriptor, "PC_NAME_MAX"):
        return False
    if root.linked_by is not None and above.status().st_uid != root.linked_by:
        return False  # whoever made the link may choose the root, and not what is around it
    place = "."
    if above.has(name):
        found, place = above.status_of(name), name
        owners = trusted_users() | {root.directory.status().st_uid}
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners:
            return False
    return os.access(place, os.W_OK | os.X_OK, dir_fd=above.descriptor, effective_ids=True)
