"""Rewrites the absolute paths in Triton's group files for the root they will stand in.

Triton (runtime/cache.py, FileCacheManager.get_group) hits if `__grp__<fn>.json` is there and every
path in its `child_paths` exists. Left as they came, these paths are a miss, or worse: any file of
this node that a remote peer named would be loaded, and inside an Inductor cache Inductor would not
emit its own copy into a key directory that is not empty. So of an incoming path only the last two
parts count, the key directory's name and the file's, and both must be those of the group file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mx_artifacts.errors import RelocationError, UnsafePathError
from mx_artifacts.kinds.base import FixupReport
from mx_artifacts.kinds.files import overwrite

GROUP_PREFIX = "__grp__"
MAX_GROUP_FILE_BYTES = 1 << 20
"""Real group files have about 1.5 kB."""

_KEY_DIRECTORY = re.compile(r"[A-Z2-7]{52}|[0-9a-f]{64}")  # BASE32 of a SHA-256; hex before 3.0
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_COMPILED = (".ttir", ".ttgir", ".llir", ".ptx", ".cubin", ".amdgcn", ".hsaco")


def is_key_directory(name: str) -> bool:
    """Tell whether `name` looks like a Triton key directory's."""
    return _KEY_DIRECTORY.fullmatch(name) is not None


def relocate_triton_groups(staged: Path, root: Path) -> FixupReport:
    """Make every Triton key directory below `staged` right for the same place below `root`.

    Finds them at any depth, as Inductor and vLLM keep Triton directories inside their own. A key
    directory whose group is not complete is removed from `staged` and reported, by its relative
    path: a miss at best, and in an Inductor cache an obstacle. All else is left as it is.

    Raises:
        UnsafePathError: a group refers to a file outside its key directory, or by an odd name.
        RelocationError: a group file lies in the root itself, outside any key directory.
    """
    touched: set[str] = set()
    dropped: dict[str, str] = {}
    place = os.path.abspath(root)
    for directory, relative, names in list(_key_directories(os.fspath(staged))):
        if not relative:
            raise RelocationError(
                f"the root of this artifact is itself a Triton key directory (for {root})",
                hint="publish the directory above it",
            )
        try:
            for name in _group_files(names):
                if _relocate(directory, name, names, f"{place}/{relative}"):
                    touched.add(f"{relative}/{name}")
        except IncompleteGroup as error:
            shutil.rmtree(directory)
            dropped[relative] = str(error)
    return FixupReport(len(touched), dropped, touched=frozenset(touched))


class IncompleteGroup(Exception):
    """The key directory is not committed, or damaged."""


def _key_directories(staged: str) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield each one's path, the same below `staged`, and the names of its files."""
    pending = [""]
    while pending:  # os.walk takes twice as long
        relative = pending.pop()
        directory = f"{staged}/{relative}" if relative else staged
        names = set()
        holds_group = is_key_directory(relative.rpartition("/")[2])
        with os.scandir(directory) as items:
            for item in items:
                name = item.name
                if item.is_dir(follow_symlinks=False):
                    pending.append(f"{relative}/{name}" if relative else name)
                else:
                    names.add(name)
                    holds_group = holds_group or name.startswith(GROUP_PREFIX)
        if holds_group:
            yield directory, relative, frozenset(names)


def _group_files(names: Iterable[str]) -> list[str]:
    groups = sorted(name for name in names if name.startswith(GROUP_PREFIX))
    if not groups and any(name.endswith(_COMPILED) for name in names):
        raise IncompleteGroup("compiled files without a group file: it was not committed")
    return groups


def _relocate(directory: str, name: str, siblings: frozenset[str], target: str) -> bool:
    """Rewrite the group file `name` for the key directory `target`; tell whether it changed."""
    text, document = _parsed(name, _read(f"{directory}/{name}", name))
    key = directory.rpartition("/")[2]
    changes = {}
    for child, old in document["child_paths"].items():
        _check_child(key, name, child, old)
        if child not in siblings:
            raise IncompleteGroup(f"{name} lists {child}, which is missing")
        changes[old] = f"{target}/{child}"
    relocated = _replace_strings(text, document, changes)
    if relocated == text:
        return False
    overwrite(f"{directory}/{name}", relocated.encode("utf-8"))
    return True


def _read(place: str, name: str) -> bytes:
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size > MAX_GROUP_FILE_BYTES:
            raise IncompleteGroup(f"{name} is damaged: too long")
        return os.read(descriptor, size)  # bytes, so that newlines stay as they are
    finally:
        os.close(descriptor)


def group_children(name: str, content: bytes) -> Mapping[str, str]:
    """Return the children of the group file `name`: their names and absolute paths.

    Raises:
        IncompleteGroup: it is damaged.
    """
    children: Mapping[str, str] = _parsed(name, content)[1]["child_paths"]
    return children


def _parsed(name: str, content: bytes) -> tuple[str, dict[str, Any]]:
    """Return the text of the group file `name`, and what it says; raises as `group_children`."""
    try:
        text = content.decode("utf-8")
        document = json.loads(text)
        children = document["child_paths"]
    except UnicodeDecodeError:
        raise IncompleteGroup(f"{name} is damaged: not UTF-8") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise IncompleteGroup(f"{name} is damaged: no JSON with child_paths") from None
    if not isinstance(children, dict) or not all(isinstance(p, str) for p in children.values()):
        raise IncompleteGroup(f"{name} is damaged: child_paths is no map of paths")
    return text, document


def _check_child(key: str, group: str, name: str, path: str) -> None:
    odd = name in ("", ".", "..") or "/" in name or not name.isprintable()
    # Both joined by "/" in the sender's path, so its own "." and ".." can play no trick here.
    if odd or not f"/{path}".endswith(f"/{key}/{name}"):
        raise UnsafePathError(
            f"Triton group {key}/{group} lists {name!r} at {path!r}, "
            "which is not a file of its own key directory"
        )


def _replace_strings(text: str, document: dict[str, Any], changes: Mapping[str, str]) -> str:
    """Replace the paths of children by those in `changes`; every other byte stays.

    `document` is what `text` says, and is changed, too.

    A string that `text` spells with other escapes than json.dumps is found by its raw form.
    """
    is_usual = json.dumps(document) == text  # as Triton writes it, so every byte is known
    document["child_paths"] = {n: changes[p] for n, p in document["child_paths"].items()}
    if is_usual:
        return json.dumps(document)
    encoded = {json.dumps(old): json.dumps(new) for old, new in changes.items()}
    encoded |= {
        json.dumps(old, ensure_ascii=False): json.dumps(new) for old, new in changes.items()
    }
    if not encoded:
        return text
    # In one pass: a new path may be equal to another old one.
    relocated = _JSON_STRING.sub(lambda match: encoded.get(match[0], match[0]), text)
    return relocated if json.loads(relocated) == document else json.dumps(document)
