"""Checks of a node: each fault that pain 7.14 and its kin name is seen, with a next step."""

from __future__ import annotations

import os
import pwd
import resource
from collections import namedtuple
from pathlib import Path

import pytest

from mx_artifacts.bulk.library import Absence
from mx_artifacts.core.identity import BackendFramework
from mx_artifacts.doctor import network, roots, tools
from mx_artifacts.doctor.base import Check, Level
from mx_artifacts.errors import ExitCode
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.node import mounts
from mx_artifacts.node.mounts import Mount, mount_of, mount_table
from tests.support.cli import runner
from tests.support.valkey import running, valkey_binary

TRITON, CUTE, FLASHINFER = map(get_kind, ("triton", "cute_dsl", "flashinfer"))


def root_of(path: Path, kind: str = "triton") -> list[Check]:
    chosen = get_kind(kind)
    return roots.check_root(chosen, chosen.roots[0], path, {}, BackendFramework.UNKNOWN)


def bad(checks: list[Check]) -> Check:
    (check,) = checks
    assert check.level is not Level.OK
    assert check.next_step
    return check


def mounted_as(monkeypatch: pytest.MonkeyPatch, type: str, *options: str) -> None:
    mount = Mount(Path("/"), type, frozenset(options))
    monkeypatch.setattr(roots, "mount_of", lambda path: mount)


# --- roots ----------------------------------------------------------------------------------------


def test_a_root_that_is_there_or_can_be_made_is_fine(tmp_path: Path) -> None:
    assert [check.level for check in root_of(tmp_path)] == [Level.OK]
    (check,) = root_of(tmp_path / "a/b")
    assert (check.level, "can be created" in check.what) == (Level.OK, True)
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_is_a_file_or_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for refused in (tmp_path / "file", tmp_path / "file" / "below"):
        assert "not a directory" in bad(root_of(refused)).what
    monkeypatch.setattr(os, "access", lambda *args, **kwargs: False)
    check = bad(root_of(tmp_path / "a/b"))
    assert (check.level, check.exit_code) == (Level.FAIL, ExitCode.USAGE)
    assert "may not write" in check.what


def test_an_unknown_home_directory_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    (check,) = roots.check_root(TRITON, TRITON.roots[0], None, {}, BackendFramework.UNKNOWN)
    assert (check.level, check.exit_code) == (Level.FAIL, ExitCode.USAGE)
    assert tools.check_user({}).level is Level.FAIL
    assert tools.check_user({"HOME": "/tmp"}).level is Level.WARN


def test_noexec_fails_only_kinds_with_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted_as(monkeypatch, "ext4", "rw", "noexec")
    assert bad(root_of(tmp_path)).exit_code is ExitCode.INCOMPATIBLE
    assert [check.level for check in root_of(tmp_path, "cute_dsl")] == [Level.OK]


@pytest.mark.parametrize("type", ["nfs4", "lustre", "fuse.s3fs", "9p"])
def test_a_network_file_system_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type: str
) -> None:
    mounted_as(monkeypatch, type, "rw")
    check = bad(root_of(tmp_path))
    assert (check.level, type in check.what) == (Level.WARN, True)


def test_little_and_too_little_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = namedtuple("space", "f_bavail f_frsize f_files f_favail f_blocks f_flag")
    for found, level in (
        (space(10, 4096, 10**6, 10**6, 10**9, 0), Level.FAIL),
        (space(10**5, 4096, 10**6, 10**6, 10**9, 0), Level.WARN),
        (space(10**6, 4096, 10**6, 5, 10**9, 0), Level.WARN),
        (space(10**6, 4096, 0, 0, 10**9, 0), Level.OK),
    ):
        monkeypatch.setattr(os, "statvfs", lambda path, found=found: found)
        (check,) = root_of(tmp_path)
        assert check.level is level
        assert (check.exit_code is ExitCode.NO_SPACE) == (level is Level.FAIL)


def test_a_clock_behind_the_files(tmp_path: Path) -> None:
    now = tmp_path.stat().st_mtime
    assert roots.check_clock(now, [tmp_path, tmp_path / "none"]).level is Level.OK
    assert roots.check_clock(now - 3600, [tmp_path]).level is Level.WARN


# --- mounts ---------------------------------------------------------------------------------------

TABLE = rb"""27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:30 / /mnt/my\040cache rw,noexec,noatime shared:7 master:1 - xfs /dev/b rw
31 27 0:31 / /mnt/my\040cache rw,relatime - tmpfs none rw
32 27 0:32 / /mnt/net ro,relatime - nfs4 host:/x rw
"""


def test_the_mount_of_a_path_is_the_innermost_and_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda self: TABLE)
    assert [str(mount.point) for mount in mount_table()][1:3] == ["/mnt/my cache"] * 2
    inner = mount_of(Path("/mnt/my cache/not/there"))
    assert inner is not None
    assert (inner.type, inner.options) == ("tmpfs", frozenset({"rw", "relatime"}))
    assert mounts.keeps_access_times(Path("/mnt/my cache/x"))
    assert not mounts.keeps_access_times(Path("/mnt/net/x"))
    outer = mount_of(Path("/mnt/my"))
    assert outer is not None
    assert outer.type == "ext4"


def test_without_proc_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bytes:
        raise PermissionError

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert mount_of(Path("/tmp")) is None
    assert not mounts.keeps_access_times(Path("/tmp"))


# --- tools, user, limits --------------------------------------------------------------------------


def program(directory: Path, name: str, says: str, code: int = 0) -> dict[str, str]:
    directory.mkdir(exist_ok=True)
    file = directory / name
    file.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    file.chmod(0o755)
    return {"PATH": str(directory)}


def tool_check(
    kind: CacheKind, name: str, env: dict[str, str], *, asked: bool = True
) -> Check | None:
    """Return what doctor says of one tool of a kind, None if it does not look for it."""
    return next((c for c in tools.check_tools([kind], asked, env) if c.name == name), None)


def level_of(kind: CacheKind, name: str, env: dict[str, str], *, asked: bool = True) -> Level:
    found = tool_check(kind, name, env, asked=asked)
    assert found is not None
    return found.level


@pytest.mark.process
def test_ninja_is_a_must_only_for_a_kind_that_was_named(tmp_path: Path) -> None:
    empty = {"PATH": str(tmp_path)}
    assert tool_check(TRITON, "ninja", empty) is None
    named = tool_check(FLASHINFER, "ninja", empty)
    assert named is not None
    assert (named.level, named.exit_code) == (Level.FAIL, ExitCode.INCOMPATIBLE)
    assert level_of(FLASHINFER, "ninja", empty, asked=False) is Level.WARN
    found = tool_check(FLASHINFER, "ninja", program(tmp_path / "bin", "ninja", "1.13.0"))
    assert found is not None
    assert found.level is Level.OK
    assert "1.13.0" in found.what


@pytest.mark.process
def test_a_program_that_does_not_run_is_not_there(tmp_path: Path) -> None:
    assert level_of(FLASHINFER, "ninja", program(tmp_path, "ninja", "no", code=1)) is Level.FAIL


@pytest.mark.process
def test_compilers_and_nvcc(tmp_path: Path) -> None:
    assert list(tools.check_tools([CUTE], True, {"PATH": ""})) == []
    env = program(tmp_path / "bin", "gcc", "gcc 12")
    assert level_of(TRITON, "C compiler", env) is Level.OK
    missing = tool_check(TRITON, "C++ compiler", env)
    assert missing is not None
    assert (missing.level, "no C++ compiler" in missing.what) == (Level.WARN, True)
    program(tmp_path / "bin", "g++", "g++ 12")
    assert level_of(TRITON, "C++ compiler", env) is Level.OK
    home = tmp_path / "cuda13"
    home.mkdir()
    program(home / "bin", "nvcc", "Cuda compilation tools, release 13.0")
    found = tool_check(FLASHINFER, "nvcc", {"PATH": "", "CUDA_HOME": str(home)})
    assert found is not None
    assert "release 13.0" in found.what


@pytest.mark.process  # nvcc, where it is at its usual place
def test_a_tool_is_searched_once_and_its_check_names_the_kinds_that_need_it() -> None:
    checks = list(tools.check_tools([TRITON, FLASHINFER], False, {"PATH": ""}))
    assert len({each.name for each in checks}) == len(checks) == 4
    (compiler,) = [each for each in checks if each.name == "C compiler"]
    assert "triton, flashinfer probe with it" in compiler.what


def test_the_compiled_part(monkeypatch: pytest.MonkeyPatch) -> None:
    for found, level in (
        (None, Level.OK),
        (Absence("it was not built", "install again"), Level.WARN),
        (Absence("this processor has no instruction for CRC32C", ""), Level.OK),
    ):
        monkeypatch.setattr(tools, "absence", lambda found=found: found)
        check = tools.check_compiled_part()
        assert check.level is level
        assert check.next_step == (found.next_step if found else "")
        assert (found is None) == (check.what == "used")


def test_memlock(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"soft": 65536}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limits["soft"], -1))
    monkeypatch.setattr(Path, "exists", lambda self: True)  # /dev/infiniband
    assert tools.check_memlock(2**28).level is Level.WARN
    limits["soft"] = resource.RLIM_INFINITY
    assert tools.check_memlock(2**28).level is Level.OK


# --- data plane and server ------------------------------------------------------------------------


@pytest.mark.process
def test_a_nixl_agent_starts_and_names_its_transports() -> None:
    check = network.check_nixl("UCX", dict(os.environ), timeout_seconds=60)
    assert check.level is not Level.FAIL, check
    assert "tcp/" in check.what or "rc_" in check.what


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("import sys; sys.exit('no nixl here')", "no nixl here"),
        ('print(\'{"error": "NIXL cannot be imported", "hint": "install it"}\')', "imported"),
        ("import time; time.sleep(60)", "did not start"),
    ],
)
def test_nixl_that_is_missing_dies_or_hangs(
    monkeypatch: pytest.MonkeyPatch, script: str, what: str
) -> None:
    monkeypatch.setattr(network, "_START_AGENT", script)
    monkeypatch.setattr(network, "_GRACE_SECONDS", 1.5)
    check = network.check_nixl("UCX", dict(os.environ), timeout_seconds=0.5)
    assert (check.level, check.exit_code) == (Level.FAIL, ExitCode.TRANSPORT)
    assert what in check.what
    assert check.next_step


@pytest.mark.process
def test_a_backend_that_nixl_lacks_is_named() -> None:
    check = network.check_nixl("NONE", dict(os.environ), timeout_seconds=60)
    assert (check.level, "NONE" in check.what) == (Level.FAIL, True)


@pytest.mark.process
def test_a_metadata_backend_that_is_there_or_not(tmp_path: Path) -> None:
    with running(valkey_binary(), tmp_path) as process:
        assert network.check_backend(process.url).level is Level.OK
    for url, code in ((process.url, ExitCode.UNREACHABLE), ("redis://", ExitCode.USAGE)):
        check = network.check_backend(url)
        assert (check.level, check.exit_code, check.name) == (Level.FAIL, code, "metadata backend")
        assert check.next_step


def test_the_backend_is_asked_only_where_settings_name_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("MX_SERVER_ADDRESS", "127.0.0.1:1"), ("MX_TRANSPORT", "inproc")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.delenv("MX_METADATA_BACKEND", raising=False)
    run = runner(capsys)
    args = ("doctor", "--kind", "cute_dsl", "--format", "json")
    assert "metadata backend" not in run(*args).out
    monkeypatch.setenv("MX_METADATA_BACKEND", "redis")
    assert "Redis 127.0.0.1:1/0 cannot be reached" in run(*args).out


def test_a_server_that_is_not_there() -> None:
    check = network.check_server("127.0.0.1:1", timeout_seconds=5)
    assert (check.level, check.exit_code) == (Level.FAIL, ExitCode.UNREACHABLE)
