"""Rewrites Triton groups the way Triton's cache manager does, each time with a new generation.

Run as a program, it does so until its standard input is closed: `triton_writer.py ROOT [ORDER]`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

CHILDREN = ("k.ttir", "k.cubin", "k.json")
GROUP = "__grp__k.json"
TRITON_ORDER = (*CHILDREN, GROUP)
NASTY_ORDER = (GROUP, "k.json", "k.cubin", "k.ttir")
"""Of a cache manager that commits first: nothing but the time between its files tells."""


def key(number: int) -> str:
    digest = hashlib.sha256(str(number).encode()).digest()
    return base64.b32encode(digest).decode().rstrip("=")


def content(directory: Path, name: str, generation: int) -> bytes:
    if name == GROUP:
        children = {child: str(directory / child) for child in CHILDREN}
        return json.dumps({"child_paths": children, "generation": generation}).encode()
    if name.endswith(".json"):
        return json.dumps({"generation": generation, "fill": "x" * 200}).encode()
    return b"%012d" % generation * 2000


def generation_of(name: str, found: bytes) -> int:
    """Return the generation of a file that must be whole."""
    if name.endswith(".json"):
        return int(json.loads(found)["generation"])
    assert found == found[:12] * 2000, f"{name} is mixed"
    return int(found[:12])


def write_group(
    root: Path,
    number: int,
    generation: int,
    order: tuple[str, ...] = TRITON_ORDER,
    pause: Callable[[], None] = lambda: None,
) -> None:
    """Write every file of a group by rename, in `order`, with a pause after each but the last."""
    directory = root / key(number)
    directory.mkdir(parents=True, exist_ok=True)
    for name in order:
        temporary = directory / f"tmp.pid_{os.getpid()}_{threading.get_ident()}"
        temporary.mkdir()
        (temporary / name).write_bytes(content(directory, name, generation))
        os.replace(temporary / name, directory / name)
        temporary.rmdir()
        if name != order[-1]:
            pause()


def rewrite_until(
    stop: threading.Event, root: Path, groups: int, order: tuple[str, ...]
) -> tuple[int, set[int]]:
    """Rewrite groups 0..`groups`-1 in turn.

    In Triton's order it now and then stays in the middle of a group for longer than the packer
    takes a file for fresh. Returns the last generation, and those that took that long to write.
    """
    slow = set()
    chance = random.Random(7)
    generation = 0

    def pause() -> None:
        if order == TRITON_ORDER and chance.random() < 0.15:
            time.sleep(0.08)

    while not stop.wait(0.02):
        generation += 1
        began = time.monotonic()
        write_group(root, generation % groups, generation, order, pause)
        if time.monotonic() - began > 0.04:
            slow.add(generation)
    return generation, slow


if __name__ == "__main__":
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    print("writing", flush=True)
    rewrite_until(over, Path(sys.argv[1]), 2, TRITON_ORDER)
