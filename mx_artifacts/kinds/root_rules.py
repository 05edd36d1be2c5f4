"""Builders of root rules: "for this engine, this variable, else that path below HOME or TMPDIR".

A rule returns the absolute path in which an engine looks, and what decided it, for messages. It
depends on the environment and on the engine, never on what is installed here. An empty variable
counts as unset. A rule creates nothing, and its path need not exist.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from mx_artifacts.core.identity import AnyBackendFramework
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.node.environment import Environment

Location = tuple[Path, str]
"""A path, and which variable or default decided it."""
Locate = Callable[[Environment, AnyBackendFramework], Location]
"""Returns where an engine looks, and which variable, or default, decided."""
Candidate = Callable[[Environment, AnyBackendFramework], Location | None]
"""Where a root is if this rule applies, else None."""


def first_of(*candidates: Candidate) -> Locate:
    """Return a rule that takes the first candidate that applies; the last one always must."""

    def locate(env: Environment, framework: AnyBackendFramework) -> Location:
        for candidate in candidates:
            found = candidate(env, framework)
            if found is not None:
                return Path(os.path.abspath(found[0])), found[1]
        raise ConfigurationError("it is not known where this cache is", hint="state it with --root")

    return locate


def for_engines(frameworks: Collection[AnyBackendFramework], *candidates: Candidate) -> Candidate:
    """Take the first of `candidates` that applies, where one of `frameworks` is the engine."""

    def locate(env: Environment, framework: AnyBackendFramework) -> Location | None:
        if framework not in frameworks:
            return None
        found = (candidate(env, framework) for candidate in candidates)
        return next((location for location in found if location is not None), None)

    return locate


def from_variable(name: str, *below: str) -> Candidate:
    """Take the directory that `name` holds, and `below` it; `~` is expanded."""

    def locate(env: Environment, framework: AnyBackendFramework) -> Location | None:
        value = env.get(name)
        if not value:
            return None
        base = home(env) / value[2:] if value.startswith("~/") else Path(value)
        return base.joinpath(*below), name

    return locate


def from_path_list(name: str, *below: str) -> Candidate:
    """Take the first path of a `:`-separated variable (the one that its tool writes to)."""

    def locate(env: Environment, framework: AnyBackendFramework) -> Location | None:
        first = {**env, name: env.get(name, "").split(":")[0]}
        return from_variable(name, *below)(first, framework)

    return locate


def below_home(*below: str) -> Candidate:
    """Take a path below the home directory."""
    return lambda env, framework: (home(env).joinpath(*below), f"default ~/{'/'.join(below)}")


def below_user_cache(*below: str) -> Candidate:
    """Take a path below $XDG_CACHE_HOME, else ~/.cache."""
    return _either(from_variable("XDG_CACHE_HOME", *below), below_home(".cache", *below))


def below_temporary(make_below: Callable[[Environment], Sequence[str]]) -> Candidate:
    """Take the path that `make_below` gives, below the directory for temporary files."""

    def locate(env: Environment, framework: AnyBackendFramework) -> Location:
        below = make_below(env)
        return temporary_directory(env).joinpath(*below), f"default $TMPDIR/{'/'.join(below)}"

    return locate


def _either(first: Candidate, second: Candidate) -> Candidate:
    return lambda env, framework: first(env, framework) or second(env, framework)


VLLM_CACHE_ROOT = "VLLM_CACHE_ROOT"


def below_vllm_cache(*below: str) -> Candidate:
    """Take a path below $VLLM_CACHE_ROOT, else below vLLM's default for it."""
    return _either(from_variable(VLLM_CACHE_ROOT, *below), below_user_cache("vllm", *below))


# --- the machine's own places --------------------------------------------------------------------


def home(env: Environment) -> Path:
    """Return $HOME, else the home directory of the passwd entry.

    Raises:
        ConfigurationError: there is neither, as under a random user id in a container.
    """
    path = env.get("HOME") or _passwd("pw_dir")
    if path is None:
        raise ConfigurationError(
            f"HOME is not set and user id {os.getuid()} has no passwd entry",
            hint="set HOME or the variable of the cache, or state its path with --root",
        )
    return Path(path)


def user_name(env: Environment, variables: Sequence[str]) -> str | None:
    """Return the first of `variables` that is set, else the passwd entry's name, else None."""
    stated = (env[name] for name in variables if env.get(name))
    return next(stated, None) or _passwd("pw_name")


def _passwd(attribute: str) -> str | None:
    try:
        import pwd  # not on every platform

        return str(getattr(pwd.getpwuid(os.getuid()), attribute)) or None
    except (ImportError, KeyError):
        return None


def temporary_directory(env: Environment) -> Path:
    """Return what Python's tempfile takes: TMPDIR, TEMP or TMP if it is a directory, else /tmp."""
    named = (env[name] for name in ("TMPDIR", "TEMP", "TMP") if env.get(name))
    return Path(next((path for path in named if os.path.isdir(path)), "/tmp"))  # noqa: S108
