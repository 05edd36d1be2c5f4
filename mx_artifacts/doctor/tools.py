"""Checks of the programs, the user and the limits that caches and engines need."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from mx_artifacts.bulk.library import absence
from mx_artifacts.core.chunks import MIB
from mx_artifacts.doctor.base import Check, fail, ok, warn
from mx_artifacts.errors import ExitCode
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.node.environment import Environment
from mx_artifacts.node.installed import CannotProbe, run_program

_TIMEOUT_SECONDS = 30.0
_COMPILES_HOST_CODE = frozenset({"triton", "inductor", "flashinfer", "tvm_ffi"})
_ASKS_NVCC = frozenset({"flashinfer", "tvm_ffi", "deep_gemm"})


def check_ninja(kinds: Sequence[CacheKind], asked: bool, env: Environment) -> Check | None:
    """Look for ninja where a kind is built by it: even a hit asks it. `asked`: kinds were named."""
    users = [kind.name for kind in kinds if "ninja_version" in kind.strict_parameters]
    if not users:
        return None
    found = _version(("ninja",), env)
    if found is not None:
        return ok("ninja", found)
    what = f"no ninja on PATH that runs; {' and '.join(users)} cannot hit without it"
    step = "install it (`pip install ninja`), the same version as on the source"
    if asked:
        return fail("ninja", what, step, ExitCode.INCOMPATIBLE)
    return warn("ninja", what, step)


def check_compiler(kinds: Sequence[CacheKind], env: Environment) -> Check | None:
    """Look for a C and a C++ compiler, which engines call also beside a hit."""
    users = [kind.name for kind in kinds if kind.name in _COMPILES_HOST_CODE]
    if not users:
        return None
    names = [name for name in (env.get("CC"), "cc", "gcc", "clang") if name]
    plus = [name for name in (env.get("CXX"), "c++", "g++", "clang++") if name]
    c, cxx = _version(names, env), _version(plus, env)
    if c and cxx:
        return ok("compiler", f"{c}; {cxx}")
    missing = " and ".join(n for n, found in (("C", c), ("C++", cxx)) if not found)
    what = f"no {missing} compiler on PATH; {', '.join(users)} probe with it, also beside a hit"
    return warn("compiler", what, "install gcc and g++, or set CC and CXX")


def check_nvcc(kinds: Sequence[CacheKind], env: Environment) -> Check | None:
    """Look for nvcc, whose path or version is part of some kinds' own keys."""
    users = [kind.name for kind in kinds if kind.name in _ASKS_NVCC]
    if not users:
        return None
    places = [f"{env[name]}/bin/nvcc" for name in ("CUDA_HOME", "CUDA_PATH") if env.get(name)]
    found = _version([*places, "nvcc", "/usr/local/cuda/bin/nvcc"], env)
    if found is not None:
        return ok("nvcc", found)
    what = f"no nvcc that runs; {', '.join(users)} have its path or version in their keys"
    return warn("nvcc", what, "install the CUDA toolkit of the source and set CUDA_HOME as there")


def check_compiled_part() -> Check:
    """Look whether this installation does what it does to many files in C (ADR 0020)."""
    name, missing = "compiled part", absence()
    if missing is None:
        return ok(name, "used")
    what = f"not used: {missing.why}; all works, but many small files take longer"
    return warn(name, what, missing.next_step) if missing.next_step else ok(name, what)


def _version(names: Collection[str], env: Environment) -> str | None:
    """Return the first of the programs that runs, and the last line of its --version."""
    for name in names:
        program = shutil.which(name, path=env.get("PATH", ""))
        if program is None:
            continue
        try:
            told = run_program((program, "--version"), env, timeout_seconds=_TIMEOUT_SECONDS)
        except CannotProbe:
            continue
        lines = [line for line in told.splitlines() if line.strip()]
        release = next((line for line in lines if "release" in line), lines[0] if lines else "")
        return f"{program}: {release.strip()}"
    return None


def check_user(env: Environment) -> Check:
    """Look at who runs this: engines derive default roots from it."""
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
            "set HOME, or every cache's own variable",
            ExitCode.USAGE,
        )
    if entry is None:
        return warn(
            "user",
            f"user id {uid} has no passwd entry; tools that ask for a name fail or take another",
            "set USER and HOME, and the caches' own variables, the same on all nodes",
        )
    if not os.access(place, os.W_OK | os.X_OK, effective_ids=True):
        return warn(
            "user",
            f"user id {uid} ({name}) cannot write to its home {place}",
            "set HOME to a directory that it may write to, or the caches' own variables",
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
        return ok("memlock", f"{what}; of no matter without RDMA devices")
    step = "`ulimit -l unlimited`, or add IPC_LOCK; else UCX quietly leaves RDMA out"
    return warn("memlock", what, step)
