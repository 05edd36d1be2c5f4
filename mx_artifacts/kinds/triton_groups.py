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
    rewritten = 0
    dropped: dict[str, str] = {}
    for directory, names in list(_key_directories(staged)):
        relative = directory.relative_to(staged)
        if directory == staged:
            raise RelocationError(
                f"the root of this artifact is itself a Triton key directory (for {root})",
                hint="publish the directory above it",
            )
        target = Path(os.path.abspath(root)) / relative
        try:
            for name in _group_files(names):
                rewritten += _relocate(directory / name, names, target)
        except IncompleteGroup as error:
            shutil.rmtree(directory)
            dropped[relative.as_posix()] = str(error)
    return FixupReport(rewritten, dropped)


class IncompleteGroup(Exception):
    """The key directory is not committed, or damaged."""


def _key_directories(staged: Path) -> Iterator[tuple[Path, frozenset[str]]]:
    for parent, _, names in os.walk(staged):
        directory = Path(parent)
        holds_group = any(name.startswith(GROUP_PREFIX) for name in names)
        if holds_group or (directory != staged and is_key_directory(directory.name)):
            yield directory, frozenset(names)


def _group_files(names: Iterable[str]) -> list[str]:
    groups = sorted(name for name in names if name.startswith(GROUP_PREFIX))
    if not groups and any(name.endswith(_COMPILED) for name in names):
        raise IncompleteGroup("compiled files without a group file: it was not committed")
    return groups


def _relocate(group_file: Path, siblings: frozenset[str], target: Path) -> int:
    """Rewrite one group file for the key directory `target`; return how many were changed."""
    content = _read(group_file)
    changes = {}
    for name, old in group_children(group_file.name, content).items():
        _check_child(group_file, name, old)
        if name not in siblings:
            raise IncompleteGroup(f"{group_file.name} lists {name}, which is missing")
        changes[old] = str(target / name)
    text = content.decode("utf-8")
    relocated = _replace_strings(text, changes)
    if relocated == text:
        return 0
    overwrite(group_file, relocated.encode("utf-8"))
    return 1


def _read(group_file: Path) -> bytes:
    if group_file.stat().st_size > MAX_GROUP_FILE_BYTES:
        raise IncompleteGroup(f"{group_file.name} is damaged: too long")
    return group_file.read_bytes()  # bytes, so that newlines stay as they are


def group_children(name: str, content: bytes) -> Mapping[str, str]:
    """Return the children of the group file `name`: their names and absolute paths.

    Raises:
        IncompleteGroup: it is damaged.
    """
    try:
        children = json.loads(content.decode("utf-8"))["child_paths"]
    except UnicodeDecodeError:
        raise IncompleteGroup(f"{name} is damaged: not UTF-8") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise IncompleteGroup(f"{name} is damaged: no JSON with child_paths") from None
    if not isinstance(children, dict) or not all(isinstance(p, str) for p in children.values()):
        raise IncompleteGroup(f"{name} is damaged: child_paths is no map of paths")
    return children


def _check_child(group_file: Path, name: str, path: str) -> None:
    odd = name in ("", ".", "..") or "/" in name or not name.isprintable()
    # Both joined by "/" in the sender's path, so its own "." and ".." can play no trick here.
    if odd or path.split("/")[-2:] != [group_file.parent.name, name]:
        raise UnsafePathError(
            f"Triton group {group_file.parent.name}/{group_file.name} lists {name!r} at {path!r}, "
            "which is not a file of its own key directory"
        )


def _replace_strings(text: str, changes: Mapping[str, str]) -> str:
    """Replace the JSON strings in `changes`; every other byte stays.

    A string that `text` spells with other escapes than json.dumps is found by its raw form.
    """
    encoded = {json.dumps(old): json.dumps(new) for old, new in changes.items()}
    encoded |= {
        json.dumps(old, ensure_ascii=False): json.dumps(new) for old, new in changes.items()
    }
    if not encoded:
        return text
    # In one pass: a new path may be equal to another old one.
    relocated = _JSON_STRING.sub(lambda match: encoded.get(match[0], match[0]), text)
    document = json.loads(text)
    document["child_paths"] = {n: changes[p] for n, p in document["child_paths"].items()}
    return relocated if json.loads(relocated) == document else json.dumps(document)
