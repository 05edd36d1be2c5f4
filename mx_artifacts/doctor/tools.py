"""Checks of the programs, the user and the limits that caches and engines need."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from mx_artifacts.bulk.library import absence
from mx_artifacts.core.chunks import MIB
from mx_artifacts.doctor.base import Check, fail, ok, warn
from mx_artifacts.errors import ExitCode
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.node.environment import Environment
from mx_artifacts.node.installed import CannotProbe, run_program

_TIMEOUT_SECONDS = 30.0


def check_tools(kinds: Sequence[CacheKind], asked: bool, env: Environment) -> Iterator[Check]:
    """Look for each tool that one of the kinds needs. `asked`: the user named the kinds."""
    for tool in dict.fromkeys(tool for kind in kinds for tool in kind.tools):
        found = _version(tool.candidates(env), env)
        if found is not None:
            yield ok(tool.name, found)
            continue
        users = [kind.name for kind in kinds if tool in kind.tools]
        what = f"no {tool.name} that runs; {', '.join(users)} {tool.lack}"
        if asked and tool.is_required:
            yield fail(tool.name, what, tool.next_step, ExitCode.INCOMPATIBLE)
        else:
            yield warn(tool.name, what, tool.next_step)


def check_compiled_part() -> Check:
    """Look whether this installation does what it does to many files in C (ADR 0020)."""
    name, missing = "compiled part", absence()
    if missing is None:
        return ok(name, "used")
    what = f"not used: {missing.why}; all works, but many small files take longer"
    return warn(name, what, missing.next_step) if missing.next_step else ok(name, what)


def _version(names: Collection[str], env: Environment) -> str | None:
    """Return the first of the programs that runs, and its release in its own words."""
    for name in names:
        program = shutil.which(name, path=env.get("PATH", ""))
        if program is None:
            continue
        try:
            output = run_program((program, "--version"), env, timeout_seconds=_TIMEOUT_SECONDS)
        except CannotProbe:
            continue
        lines = [line for line in output.splitlines() if line.strip()]
        release = next((line for line in lines if "release" in line), lines[0] if lines else "")
        return f"{program}: {release.strip()}"
    return None


def check_user(env: Environment) -> Check:
    """Check the user of this process, from which engines derive their default roots."""
    uid = os.geteuid()
    home = env.get("HOME", "")
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        entry = None
    name = env.get("USER") or (entry.pw_name if entry else "")
    place = home or (entry.pw_dir if entry else "")
    if not place:
        return fail(
            "user",
            f"user id {uid} has no passwd entry and HOME is not set",
            "set HOME, or the variable of each cache",
            ExitCode.USAGE,
        )
    if entry is None:
        return warn(
            "user",
            f"user id {uid} has no passwd entry; tools that need a user name fail or use another "
            "one",
            "set USER, HOME and the variables of the caches to the same values on all nodes",
        )
    if not os.access(place, os.W_OK | os.X_OK, effective_ids=True):
        return warn(
            "user",
            f"user id {uid} ({name}) cannot write to its home {place}",
            "set HOME to a directory that it can write, or set the variables of the caches",
        )
    return ok("user", f"{name} (user id {uid}), home {place}")


def check_memlock(registered_bytes: int) -> Check:
    """Compare the limit of locked memory with what a transfer registers [bytes]."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return ok("memlock", "unlimited")
    what = f"{soft // 1024} KiB, transfers register {registered_bytes // MIB} MiB"
    if soft >= registered_bytes:
        return ok("memlock", what)
    if not Path("/dev/infiniband").exists():
        return ok("memlock", f"{what}; without RDMA devices this is enough")
    step = "`ulimit -l unlimited`, or add IPC_LOCK; else UCX quietly leaves RDMA out"
    return warn("memlock", what, step)
