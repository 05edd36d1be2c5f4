"""vLLM's cache_key_factors.json: the factors of the name of a torch_compile_cache directory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

FACTORS_FILE = "cache_key_factors.json"

MAX_FACTORS_BYTES = 1 << 20
"""Maximum size of the file [bytes]. Real ones have some ten kilobytes."""

MAX_FLAT_CHARACTERS = 8 << 20
"""Maximum length of all factors, each with its whole path [characters]."""

_ABSENT = "not there"


def first_factors(contents: Iterable[bytes]) -> dict[str, str]:
    """Return the factors in the first of these files that is whole, flat; {} without one.

    All ranks of one directory have equal factors, for they are what its name was made from.
    """
    for content in contents:
        try:
            return flat_factors(json.loads(content))
        except (ValueError, RecursionError):
            continue  # plainly written by vLLM, so it may be half there
    return {}


def factor_differences(
    installed: Iterable[bytes], in_use: Iterable[bytes]
) -> dict[str, tuple[str, str]]:
    """Map each factor that differs to (its value where installed, where in use).

    Empty where one side has no factors file.
    """
    ours, theirs = first_factors(installed), first_factors(in_use)
    return differing(ours, theirs) if ours and theirs else {}


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Map each factor in which two sets differ to (ours, theirs)."""
    return {
        name: (ours.get(name, _ABSENT), theirs.get(name, _ABSENT))
        for name in sorted({*ours, *theirs})
        if ours.get(name) != theirs.get(name)
    }


def flat_factors(document: object) -> dict[str, str]:
    """Return the leaves of the JSON document by their path, such as `env.VLLM_X`.

    Raises:
        ValueError: with their paths they become too long.
        RecursionError: the document is nested too deep.
    """
    factors: dict[str, str] = {}
    left = MAX_FLAT_CHARACTERS
    for path, value in _flat("", document):
        left -= len(path) + len(value)
        if left < 0:
            raise ValueError(f"the factors have more than {MAX_FLAT_CHARACTERS} characters")
        factors[path] = value
    return factors


def _flat(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(f"{prefix}.{name}" if prefix else str(name), inner)
    else:
        yield prefix, value if isinstance(value, str) else json.dumps(value, sort_keys=True)
