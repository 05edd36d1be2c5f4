"""Makes a seeded tree that looks like a Triton cache, changes a part of it, compares two."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MIB = 1 << 20
PAYLOADS = ("k.source", "k.ttir", "k.ttgir", "k.llir", "k.ptx", "k.cubin")
METADATA = "k.json"
GROUP_PREFIX = "__grp__"
GROUP = f"{GROUP_PREFIX}k.json"
FILES_IN_DIRECTORY = len(PAYLOADS) + 2
_BLOCK_BYTES = 4 * MIB
_WRITTEN_AT = 1_700_000_000
"""Modification times [s since 1970] are fixed, so that equal seeds give equal trees."""


class TreesDifferError(Exception):
    """A method did not end in the tree that it should have copied."""


class Tree(Protocol):
    """What is moved: `files` files at `root`, which have `file_bytes` together."""

    @property
    def root(self) -> Path: ...

    @property
    def files(self) -> int: ...

    @property
    def file_bytes(self) -> int: ...


@dataclass(frozen=True)
class GeneratedTree:
    """A tree at `root`: `directories` key directories, whose files have `file_bytes` together."""

    root: Path
    seed: int
    directories: int
    file_bytes: int

    @property
    def files(self) -> int:
        """How many files there are."""
        return self.directories * FILES_IN_DIRECTORY


def make_tree(root: Path, *, mib: float, files: int, seed: int = 1) -> GeneratedTree:
    """Write a tree of about `mib` MiB in `files` files, rounded to whole key directories of 8.

    Six files of a directory share the bytes, with exponentially distributed sizes; the other two
    are its metadata and its group file, of a few hundred bytes as Triton's are. Contents are
    random bytes, which no compression makes smaller.
    """
    directories = max(1, round(files / FILES_IN_DIRECTORY))
    chance = random.Random(seed)
    shares = [chance.expovariate(1.0) for _ in range(directories * len(PAYLOADS))]
    scale = mib * MIB / sum(shares)
    sizes = iter([max(1, round(share * scale)) for share in shares])
    total = 0
    for number in range(directories):
        directory = root / _key(seed, number)
        directory.mkdir(parents=True)
        for name in PAYLOADS:
            _write_random(directory / name, next(sizes), chance)
        (directory / METADATA).write_text(json.dumps({"name": "k", "number": number}))
        children = {name: str(directory / name) for name in (*PAYLOADS, METADATA)}
        (directory / GROUP).write_text(json.dumps({"child_paths": children}))
        total += _set_times(directory, 0)
    return GeneratedTree(root, seed, directories, total)


def change_tree(tree: GeneratedTree, *, fraction: float, generation: int) -> int:
    """Give `fraction` of the key directories new contents of the same sizes; return the bytes.

    `generation` (from 1) decides which directories these are, and what is in them.
    """
    chance = random.Random(f"{tree.seed}/{generation}")
    count = max(1, round(tree.directories * fraction))
    changed = 0
    for number in chance.sample(range(tree.directories), count):
        directory = tree.root / _key(tree.seed, number)
        for name in PAYLOADS:
            _write_random(directory / name, (directory / name).stat().st_size, chance)
        changed += _set_times(directory, generation)
    return changed


def _key(seed: int, number: int) -> str:
    digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
    return base64.b32encode(digest).decode().rstrip("=")


def _write_random(path: Path, size: int, chance: random.Random) -> None:
    with path.open("wb") as file:
        for start in range(0, size, _BLOCK_BYTES):
            file.write(chance.randbytes(min(_BLOCK_BYTES, size - start)))


def _set_times(directory: Path, generation: int) -> int:
    """Date the files of a directory, its group last, as Triton does; return their bytes."""
    written_at = _WRITTEN_AT + 10 * generation
    for name in (*PAYLOADS, METADATA):
        os.utime(directory / name, (written_at, written_at))
    os.utime(directory / GROUP, (written_at + 1, written_at + 1))
    return sum(path.stat().st_size for path in directory.iterdir())


def check_equal(source: Path, copy: Path, *, relocated: bool) -> None:
    """Compare two trees: names, kinds and every byte.

    With `relocated`, group files must name the places in `copy` where they name those in `source`,
    as a Triton at `copy` would have written them; else they must be as they were.

    Raises:
        TreesDifferError: says what is the first difference.
    """
    there, here = set(_walk(source)), set(_walk(copy))
    if there != here:
        odd = sorted(there ^ here)
        raise TreesDifferError(f"{copy}: {len(odd)} paths too few or too many, such as {odd[0]!r}")
    groups = {path for path in there if relocated and Path(path).name.startswith(GROUP_PREFIX)}
    unlike = [group for group in groups if not _is_moved_group(source, copy, group)]
    for path in (*differing_files(source, copy, there - groups), *unlike):
        raise TreesDifferError(f"{copy / path} has other bytes than {source / path}")


def differing_files(source: Path, copy: Path, paths: Iterable[str]) -> Iterator[str]:
    """Give those of `paths`, which are below both, whose bytes are not the same.

    Raises:
        TreesDifferError: a directory is no directory in `copy`, or became one.
    """
    for path in paths:
        there, here = source / path, copy / path
        if there.is_dir() != here.is_dir():
            raise TreesDifferError(f"{here} is no longer a directory, or became one")
        if not there.is_dir() and not _same_bytes(there, here):
            yield path


def _walk(root: Path) -> Iterator[str]:
    """Give every path below `root`, relative."""
    for parent, directories, names in os.walk(root):
        below = Path(parent).relative_to(root)
        yield from (str(below / name) for name in (*directories, *names))


def _is_moved_group(source: Path, copy: Path, path: str) -> bool:
    expected = (source / path).read_text().replace(f"{source}/", f"{copy}/")
    return (copy / path).read_text() == expected


def _same_bytes(source: Path, copy: Path) -> bool:
    with source.open("rb") as there, copy.open("rb") as here:
        while True:
            block = there.read(_BLOCK_BYTES)
            if block != here.read(_BLOCK_BYTES):
                return False
            if not block:
                return True
