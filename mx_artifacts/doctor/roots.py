"""Checks of cache roots: existence, write access, file system, free space."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mx_artifacts.core.chunks import MIB
from mx_artifacts.core.identity import AnyBackendFramework
from mx_artifacts.doctor.base import Check, fail, ok, warn
from mx_artifacts.errors import ConfigurationError, ExitCode, UnusablePlaceError
from mx_artifacts.install.workspace.opening import check_target
from mx_artifacts.kinds.base import CacheKind, RootRule
from mx_artifacts.node.environment import Environment
from mx_artifacts.node.mounts import is_remote, mount_of

TOO_LITTLE_BYTES = 64 * MIB
"""Real caches are 0.3 to 20 MB in the small (docs/cache-facts.md, 0) and GBs in the large."""
LITTLE_BYTES = 1024 * MIB
FEW_INODES = 10_000


def check_root(
    kind: CacheKind,
    rule: RootRule,
    stated: Path | None,
    env: Environment,
    framework: AnyBackendFramework,
) -> list[Check]:
    """Look at one root of a kind; return what is wrong, or one finding that all is well.

    It is `stated`, or where the engine `framework` looks.
    """
    name = f"{kind.name} {rule.name or 'root'}"
    if stated is not None:
        path, origin = stated, "stated"
    else:
        try:
            path, origin = rule.locate(env, framework)
        except ConfigurationError as error:
            return [fail(name, str(error), error.hint(), error.exit_code)]
    try:
        check_target(path)  # as an install would
    except UnusablePlaceError as error:
        return [fail(name, str(error), error.hint(), error.exit_code)]
    place = nearest_directory(path)
    found = (_file_system(name, path, kind.loads_libraries), _space(name, place))
    problems = [problem for problem in found if problem is not None]
    if problems:
        return problems
    mount = mount_of(path)
    there = "writable" if path.is_dir() else "does not exist yet, but can be created"
    return [ok(name, f"{path} ({origin}): {there}, {mount.type if mount else 'unknown'}")]


def nearest_directory(path: Path) -> Path:
    """Return `path`, or the closest directory above it that exists."""
    return next(each for each in (path, *path.parents) if each.is_dir())


def _file_system(name: str, path: Path, loads_libraries: bool) -> Check | None:
    mount = mount_of(path)
    if mount is None:
        return None
    if "noexec" in mount.options and loads_libraries:
        return fail(
            name,
            f"{path} is on {mount.point}, which is mounted noexec: no library can be loaded there",
            "mount it with exec, or move the engine's cache to another file system",
            ExitCode.INCOMPATIBLE,
        )
    if is_remote(mount):
        return warn(
            name,
            f"{path} is on {mount.point}, which is {mount.type}: on shared or slow file systems, "
            "caches can be damaged and locks can be lost",
            "keep caches on a local disk of each node, and fetch them in place of sharing them",
        )
    return None


def _space(name: str, place: Path) -> Check | None:
    found = os.statvfs(place)
    free_bytes = found.f_bavail * found.f_frsize
    what = f"{place} has {free_bytes // MIB} MiB free"
    step = "free space, or name a root on another file system"
    if free_bytes < TOO_LITTLE_BYTES:
        return fail(name, what, step, ExitCode.NO_SPACE)
    if found.f_files and found.f_favail < FEW_INODES:  # btrfs reports no inode counts
        return warn(name, f"{place} has only {found.f_favail} inodes free", step)
    return warn(name, what, step) if free_bytes < LITTLE_BYTES else None


def check_clock(now_seconds: float, paths: Iterable[Path]) -> Check:
    """Compare the clock with files of this node: ninja trusts nothing from the future."""
    late = [path for path in paths if _mtime_seconds(path) > now_seconds + 5.0]
    if not late:
        return ok("clock", "not behind this node's files")
    what = f"{late[0]} was changed in the future"
    return warn(
        "clock", what, "set the clock (NTP), because ninja builds again what looks outdated"
    )


def _mtime_seconds(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
