"""Identity values that the user states: valid names and values, and their form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mx_artifacts import parsing
from mx_artifacts.core.identity import KIND_PARAMETER
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.kinds.base import SIZES
from mx_artifacts.probes.base import ABSENT
from mx_artifacts.probes.engines import ENGINE_NAMES, parse_engine

_UINT32_MAX = 2**32 - 1
_NOT_FOR_USERS = {
    "model_name": "state the model itself",
    "mx_source_type": "the cache kind decides it",
    "extra_parameters": "state each extra parameter by its own name",
    KIND_PARAMETER: "the cache kind decides it",
}


def read_overrides(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the stated values by lower-case name, in the form in which equal things are equal.

    Raises:
        ConfigurationError: a name or value that makes no sense, or a name that is stated twice.
    """
    stated: dict[str, str] = {}
    for key, value in overrides.items():
        name = parsing.parse_or_refuse(parsing.parse_utf8, key.strip().lower(), "identity value")
        if name in _NOT_FOR_USERS or not name:
            raise ConfigurationError(
                f"{key!r} cannot be stated as an identity value", hint=_NOT_FOR_USERS.get(name)
            )
        if name in stated:
            raise ConfigurationError(
                f"identity value {name} is stated twice",
                hint=f"state {name} once; upper and lower case are the same in names",
            )
        stated[name] = _read_value(name, value.strip())
    return stated


def _read_value(name: str, value: str) -> str:
    """Check a stated value; return it in the form in which equal things are equal."""
    value = parsing.parse_or_refuse(parsing.parse_utf8, value, f"identity value {name}")
    if not value or value.lower() == "unknown":
        raise ConfigurationError(
            f"identity value {name} is {value!r}, but an unknown value must not match another "
            "unknown value",
            hint=f"state the value, or {ABSENT!r} if there is none, or leave {name} out",
        )
    if name in SIZES and not (re.fullmatch(r"[0-9]{1,10}", value) and int(value) <= _UINT32_MAX):
        raise ConfigurationError(
            f"identity value {name} is {value!r}, but should be a whole number",
            hint=f"state the number of ranks: --identity {name}=1",
        )
    if name == "backend_framework":
        engine = parsing.parse_or_refuse(parse_engine, value, f"identity value {name}")
        value = ENGINE_NAMES[engine]
    if name == "gpu_arch":
        # As compilers write it (sm_90), and as it is compared (sm90). A letter stays: sm90a has
        # instructions that sm90 has not.
        value = re.sub(r"^sm_(?=\d)", "sm", value.lower())
    return value


def field_value(name: str, value: str) -> Any:
    """Return the value as SourceIdentity has it."""
    if name in SIZES:
        return int(value)
    if name == "backend_framework":
        return parse_engine(value)
    return value
