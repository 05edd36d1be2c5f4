"""Decides when one of vLLM's hash directories is committed, and which ranks it serves.

`torch_aot_compile/<sha256>/rank_<r>_<dp>/model` is one pickle. `<10 hex>/rank_<r>_<dp>/<prefix>/`
holds artifacts and `vllm_compile_cache.py`, a literal that names them. If a named artifact is
missing or damaged, the engine does not start (docs/cache-facts.md, 3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.kinds.base import RankSet
from mx_artifacts.kinds.inductor.literals import MAX_LITERAL_BYTES, LiteralString, strings_of
from mx_artifacts.kinds.inductor.torch_files import artifact_is_damaged, pickle_fault

AOT_DIRECTORY = "torch_aot_compile"
INDEX_FILE = "vllm_compile_cache.py"
HASH = re.compile(r"[0-9a-f]{10}")

_RANK = re.compile(r"rank_([0-9]{1,6})_([0-9]{1,6})")
_MODEL = "model"
_ARTIFACT_PREFIX = "artifact_"
_MAX_RANKS = 65_536
"""Maximum number of ranks that one may expect between the lowest and the highest."""


def hash_directory_of(path: str) -> str | None:
    """Return the hash directory of vLLM that is or contains `path`, or None."""
    parts = path.split("/")
    if parts[0] == AOT_DIRECTORY:
        return "/".join(parts[:2])
    return parts[0] if HASH.fullmatch(parts[0]) else None


def hash_directory_fault(entry: EntryView) -> str | None:
    """Refuse a hash directory whose loader would fail, or that no rank has committed."""
    models = [path for path in entry.files if _rank_file(entry.path, path) == _MODEL]
    if entry.path.startswith(AOT_DIRECTORY) and not models:
        return "no rank has saved its model yet"
    fault = pickle_fault(entry, models) or _unnamed_fault(entry)
    for path in entry.files:
        fault = fault or (_index_fault(entry, path) if path.endswith("/" + INDEX_FILE) else None)
    return fault


def _unnamed_fault(entry: EntryView) -> str | None:
    """Refuse artifacts without the index beside them, which vLLM writes when it has them all."""
    for path in entry.files:
        rank, _, rest = path[len(entry.path) + 1 :].partition("/")
        above, _, artifact = rest.partition("/" + _ARTIFACT_PREFIX)
        if artifact and f"{entry.path}/{rank}/{above}/{INDEX_FILE}" not in entry.files:
            return f"{rank}/{above} has no {INDEX_FILE}, so that rank has not saved it yet"
    return None


def rank_sets(paths: Iterable[str]) -> tuple[RankSet, ...]:
    """Return, for each hash directory, which of its ranks lack what others have.

    Compared are the files that a rank's loader begins with. Ranks between the lowest and the
    highest that are absent count as lacking everything, unless that would be very many.
    """
    found: dict[str, dict[tuple[int, int], set[str]]] = {}
    for path in paths:
        directory = hash_directory_of(path)
        rank = _rank_of(directory, path) if directory is not None else None
        if directory is not None and rank is not None:
            names = found.setdefault(directory, {}).setdefault(rank, set())
            name = _rank_file(directory, path)
            if name == _MODEL or (name and name.endswith("/" + INDEX_FILE)):
                names.add(name)
    return tuple(
        _rank_set(directory, ranks)
        for directory, ranks in sorted(found.items())
        if any(ranks.values())
    )


def _rank_set(directory: str, ranks: dict[tuple[int, int], set[str]]) -> RankSet:
    begin_with = set().union(*ranks.values())
    numbers = [number for number, _ in ranks]
    replicas = {replica for _, replica in ranks}
    between = range(min(numbers), max(numbers) + 1)
    expected = set(ranks)
    if len(between) * len(replicas) <= _MAX_RANKS:
        expected |= {(number, replica) for number in between for replica in replicas}
    lacking = {}
    for number, replica in sorted(expected):
        names = begin_with - ranks.get((number, replica), set())
        if names:
            lacking[f"rank_{number}_{replica}"] = tuple(sorted(names))
    return RankSet(directory, len(expected) - len(lacking), lacking)


def _rank_of(directory: str, path: str) -> tuple[int, int] | None:
    match = _RANK.fullmatch(path[len(directory) + 1 :].split("/", 1)[0])
    return (int(match[1]), int(match[2])) if match else None


def _rank_file(directory: str, path: str) -> str | None:
    """Return what of `path` follows its rank's directory, if it is in one."""
    rank, _, rest = path[len(directory) + 1 :].partition("/")
    return rest if _RANK.fullmatch(rank) else None


def _index_fault(entry: EntryView, path: str) -> str | None:
    where = path[len(entry.path) + 1 :]
    if entry.files[path].size > MAX_LITERAL_BYTES:
        return f"{where} is too long to be checked"
    try:
        strings = strings_of(entry.read(path).decode("utf-8"))
    except ValueError:
        return f"{where} is cut short: vLLM cannot read it"
    prefix = path[: -len(INDEX_FILE)]
    # An artifact saved "unpacked" is a directory.
    present = {p[len(prefix) :].partition("/")[0] for p in entry.files if p.startswith(prefix)}
    for artifact in artifacts_of(strings):
        if artifact not in present:
            return f"{where} names {shown(artifact)}, which is missing"
        file = entry.files.get(prefix + artifact)
        if file is not None and not file.size:
            return f"{where} names {shown(artifact)}, which is empty"
        if file is not None and artifact_is_damaged(entry, prefix + artifact):
            return f"{where} names {shown(artifact)}, which is cut short or damaged"
    return None


def artifacts_of(strings: Iterable[LiteralString]) -> Iterator[str]:
    """Yield the artifact names anywhere in an index; versions nest them differently."""
    for string in strings:
        name = string.value
        if name.startswith(_ARTIFACT_PREFIX) and "/" not in name and not string.is_key:
            yield name
