"""Rewrites the absolute paths in Triton's group files for the root in which they will be.

Triton (runtime/cache.py, FileCacheManager.get_group) hits if `__grp__<fn>.json` exists and every
path in its `child_paths` exists. Unchanged paths would be a miss, or worse: a remote peer could
name any file of this node, and Triton would load it; and inside an Inductor cache, Inductor would
not write its own copy into a key directory that is not empty. So only the last two parts of a
received path count, the names of the key directory and the file. Both must match the group file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from mx_artifacts.bulk.overwrite import overwrite_files
from mx_artifacts.bulk.read import contents_of
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.errors import RelocationError, UnsafePathError
from mx_artifacts.kinds.base import FileContent, FixupReport

GROUP_PREFIX = "__grp__"
MAX_GROUP_FILE_BYTES = 128 * 1024
"""Maximum size of a group file [bytes]. Real ones have about 1.5 kB."""

MAX_GROUPS = 64
"""Maximum number of groups in a key directory. Triton writes one."""

_GROUPS_AT_ONCE = 128
"""Number of groups that are in memory: 0.2 MB mostly, 24 MiB at most."""
_KEY_DIRECTORY = re.compile(r"[A-Z2-7]{52}|[0-9a-f]{64}")  # BASE32 of a SHA-256; hex before 3.0
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_COMPILED = (".ttir", ".ttgir", ".llir", ".ptx", ".cubin", ".amdgcn", ".hsaco")


def is_key_directory(name: str) -> bool:
    """Return whether `name` looks like a Triton key directory's."""
    return _KEY_DIRECTORY.fullmatch(name) is not None


def relocate_triton_groups(staged: Path, root: Path) -> FixupReport:
    """Make every Triton key directory below `staged` right for the same place below `root`.

    Finds them at any depth, as Inductor and vLLM keep Triton directories inside their own. A key
    directory whose group is not complete is removed from `staged` and reported by its relative
    path, because it would be a miss at best, and in an Inductor cache an obstacle. All else stays
    as it is.

    Raises:
        UnsafePathError: a group refers to a file outside its key directory, or by an odd name.
        RelocationError: a group file is in the root itself, outside any key directory.
    """
    written: dict[str, FileContent] = {}
    dropped: dict[str, str] = {}
    tree, place = os.fspath(staged), os.path.abspath(root)
    for directories in _batches(_key_directories(tree)):
        if not directories[0].path:  # it would be the first of all
            raise RelocationError(
                f"the root of this artifact is itself a Triton key directory (for {root})",
                hint="publish its parent directory",
            )
        paths = [f"{each.path}/{name}" for each in directories for name in each.groups]
        contents = dict(zip(paths, contents_of(tree, paths, MAX_GROUP_FILE_BYTES), strict=True))
        changed: dict[str, bytes] = {}
        for directory in directories:
            try:
                changed |= _relocated_groups(directory, contents, f"{place}/{directory.path}")
            except IncompleteGroup as error:
                dropped[directory.path] = str(error)
        overwrite_files(tree, changed)
        written |= {path: FileContent.of(content) for path, content in changed.items()}
    for path in dropped:  # not before all were looked at: one may lie in another
        if os.path.lexists(f"{tree}/{path}"):
            shutil.rmtree(f"{tree}/{path}")
    if dropped:
        written = {p: now for p, now in written.items() if os.path.lexists(f"{tree}/{p}")}
    return FixupReport(len(written), dropped, touched=written)


def _batches(directories: Iterator[_KeyDirectory]) -> Iterator[Sequence[_KeyDirectory]]:
    some: list[_KeyDirectory] = []
    count = 0
    for directory in directories:
        some.append(directory)
        count += max(1, len(directory.groups))
        if count >= _GROUPS_AT_ONCE:
            yield some
            some, count = [], 0
    if some:
        yield some


class IncompleteGroup(Exception):
    """The key directory is not committed, or damaged."""


class _KeyDirectory(NamedTuple):
    """A key directory by its path below the tree, the names of its files, and of its groups."""

    path: str
    names: Set[str]
    groups: Sequence[str]


def _key_directories(tree: str) -> Iterator[_KeyDirectory]:
    """Yield all below `tree`, an outer one before those in it."""
    pending = [""]
    while pending:  # os.walk takes twice as long
        relative = pending.pop()
        names = set()
        with os.scandir(f"{tree}/{relative}" if relative else tree) as items:
            for item in items:
                name = item.name
                if item.is_dir(follow_symlinks=False):
                    pending.append(f"{relative}/{name}" if relative else name)
                else:
                    names.add(name)
        groups = sorted(name for name in names if name.startswith(GROUP_PREFIX))
        if len(groups) > MAX_GROUPS:
            groups = groups[: MAX_GROUPS + 1]  # which is enough to refuse it
        if groups or is_key_directory(relative.rpartition("/")[2]):
            yield _KeyDirectory(relative, names, groups)


def _relocated_groups(
    directory: _KeyDirectory, contents: Mapping[str, bytes | None], target: str
) -> Mapping[str, bytes]:
    """Return the group files of a key directory that change for `target`, by path."""
    path, names, groups = directory
    if len(groups) > MAX_GROUPS:
        raise IncompleteGroup(f"it has more than {MAX_GROUPS} group files, where Triton writes one")
    if not groups and any(name.endswith(_COMPILED) for name in names):
        raise IncompleteGroup("compiled files without a group file: it was not committed")
    key = path.rpartition("/")[2]
    changed = {}
    for name in groups:
        content = contents[f"{path}/{name}"]
        if content is None:
            raise IncompleteGroup(f"{name} is damaged: too long")
        text, document = _parsed(name, content)
        check_children(key, name, document["child_paths"], names)
        relocated = _with_children_in(target, text, document)
        if relocated != text:
            changed[f"{path}/{name}"] = relocated.encode("utf-8")
    return changed


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


def check_children(key: str, group: str, children: Mapping[str, str], names: Set[str]) -> None:
    """Check that children of `group` are files of its key directory `key`, which has `names`.

    Raises:
        UnsafePathError: one is another file.
        IncompleteGroup: one is missing.
    """
    # Both joined by "/" in the sender's path, so its own "." and ".." can play no trick here.
    ends = [f"/{key}/{name}" for name in children]
    are_inside = map(str.endswith, [f"/{path}" for path in children.values()], ends)
    if all(are_inside) and children.keys() <= names and all(map(str.isprintable, children)):
        return
    for name, path in children.items():
        odd = name in ("", ".", "..") or "/" in name or not name.isprintable()
        if odd or not f"/{path}".endswith(f"/{key}/{name}"):
            raise UnsafePathError(
                f"Triton group {key}/{group} lists {shown(name)!r} at {shown(path)!r}, which is "
                "not in the key directory of the group"
            )
        if name not in names:
            raise IncompleteGroup(f"{group} lists {shown(name)}, which is missing")


def _with_children_in(target: str, text: str, document: dict[str, Any]) -> str:
    """Return `text`, the group file that says `document`, with its children in `target`.

    Every other byte stays. `document` is changed, too.
    """
    old = document["child_paths"]
    document["child_paths"] = new = {name: f"{target}/{name}" for name in old}
    above = {path[: -len(name)] for name, path in old.items()}
    if len(above) == 1:  # and spelled as Triton writes it, and nowhere else
        before, after = (json.dumps(path)[1:-1] for path in (above.pop(), f"{target}/"))
        if text.count(before) == len(old):
            relocated = text.replace(before, after)
            if json.loads(relocated) == document:
                return relocated
    return _replace_strings(text, document, {path: new[name] for name, path in old.items()})


def _replace_strings(text: str, document: dict[str, Any], changes: Mapping[str, str]) -> str:
    """Replace the strings in `changes` of `text`, so that it says `document`.

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
    return relocated if json.loads(relocated) == document else json.dumps(document)
