"""Probes of the installed Triton: its version, and the hash that is part of all its cache keys."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from mx_artifacts.node.environment import Environment
from mx_artifacts.node.installed import CannotProbe, package_directory, run_for_json
from mx_artifacts.probes.base import SAME_IMAGE, Fact, IdentityValue, ProbeContext


@dataclass(frozen=True)
class TritonBuild:
    """Triton's version, and the hash of all of its compiler that every cache key starts with.

    `reference_key` is the same, or "" in a version that has it where the reference does not look.
    """

    version: str
    key: str
    reference_key: str = ""


# In a process of its own: importing triton maps its 500 MB library into this one. cwd is "/" so
# that no directory called triton here is imported. 0.7 s, most of it hashing that library.
_ASK_TRITON = """
import json, triton
try:
    from triton.runtime.cache import triton_key
    old = False
except ImportError:
    from triton.compiler.compiler import triton_key
    old = True
key = triton_key()
print(json.dumps([triton.__version__, key, "" if old else key]))
"""
_TIMEOUT_SECONDS = 120.0  # the library may have to come over a network file system


def triton_build(env: Environment) -> TritonBuild:
    """Return what triton itself says, in its own words: `triton_key` is the reference's too."""
    package_directory("triton")
    answer = run_for_json(
        (sys.executable, "-c", _ASK_TRITON), env, timeout_seconds=_TIMEOUT_SECONDS
    )
    if not (isinstance(answer, list) and len(answer) == 3 and all(answer[:2])):
        raise CannotProbe("triton states no version or key")
    return TritonBuild(*map(str, answer))


def _version(context: ProbeContext) -> Fact:
    return Fact(triton_build(context.env).version, "probed: triton.__version__")


def _key(context: ProbeContext) -> Fact:
    return Fact(triton_build(context.env).key, "probed: triton's triton_key()")


def _reference_key(context: ProbeContext) -> Fact:
    origin = "probed: triton.runtime.cache.triton_key()"
    return Fact(triton_build(context.env).reference_key, origin)


TRITON_VALUES: Mapping[str, IdentityValue] = {
    "triton_version": IdentityValue(_version, SAME_IMAGE),
    "triton_key": IdentityValue(_key, SAME_IMAGE, _reference_key),
}
"""For kinds whose entries Triton compiled."""
