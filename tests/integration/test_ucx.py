"""What UCX does to a process in which an agent starts; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

from mx_artifacts.transport.nixl import UCX_DEFAULTS_OF_AGENTS

PROGRAM = """
import ctypes, sys
from mx_artifacts.runtime.process import claim_process
from mx_artifacts.transport.nixl import start_agent

def code():
    address = ctypes.cast(ctypes.CDLL(None).munmap, ctypes.c_void_p).value
    return ctypes.string_at(address, 16)

before = code()
if sys.argv[1] == "claimed":
    claim_process()
started = start_agent("ucx-test", "UCX", 60.0)
print("untouched" if code() == before else "patched")
"""


def started(how: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), **variables}
    command = [sys.executable, "-c", PROGRAM, how]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True)


def test_in_a_program_of_ours_it_leaves_libc_alone() -> None:
    assert started("claimed").stdout.split() == ["untouched"]


def test_an_engine_that_we_are_loaded_into_gets_it_as_ever() -> None:
    assert started("shared").stdout.split() == ["patched"]


def test_variables_of_ucx_that_the_user_sets_are_kept() -> None:
    assert started("claimed", UCX_MEM_EVENTS="y").stdout.split() == ["patched"]


def test_ucx_knows_the_variables_that_we_set() -> None:
    """UCX warns of variables that it does not read, as of one that another release dropped."""
    assert "UCX_NO_SUCH_THING" in started("claimed", UCX_NO_SUCH_THING="1").stderr
    assert "UCX_" not in started("claimed").stderr
    # What is told our agents it would ignore in silence; an agent starts with none of it, too.
    known = {each.name: each.value for each in UCX_DEFAULTS_OF_AGENTS}
    assert "UCX_" not in started("claimed", **known).stderr
