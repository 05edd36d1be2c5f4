"""Rewrites Triton groups the way Triton's cache manager does, each time with a new generation.

Run as a program, it does so until its standard input is closed: `triton_writer.py ROOT [SECONDS]`.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.child import Child

CHILDREN = ("k.ttir", "k.cubin", "k.json")
GROUP = "__grp__k.json"
BUSY, CALM = 2, 2
"""Groups that are rewritten all the time, and groups after them that nobody touches."""
PAUSE_SECONDS = 0.02
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


def write_groups(root: Path) -> Path:
    """Write the busy and the calm groups for the first time; return `root`."""
    for number in range(BUSY + CALM):
        write_group(root, number, 0)
    return root


def generations_in(root: Path) -> dict[str, set[int]]:
    """Check that each group in `root` has the files that it lists, each whole, and no other.

    Returns the generations of the files of each, by the group's key.
    """
    generations = {}
    for group in sorted(root.iterdir()):
        found = {path.name: generation_of(path.name, path.read_bytes()) for path in group.iterdir()}
        assert set(found) == {*json.loads((group / GROUP).read_bytes())["child_paths"], GROUP}
        generations[group.name] = set(found.values())
    return generations


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
    stop: threading.Event,
    root: Path,
    order: tuple[str, ...] = TRITON_ORDER,
    pause_seconds: float = PAUSE_SECONDS,
) -> tuple[int, set[int]]:
    """Rewrite the busy groups in turn, with pauses of about `pause_seconds` between them.

    In Triton's order it now and then stays in the middle of a group for longer than the packer
    takes a file for fresh. Returns the last generation, and those that took that long to write.
    """
    slow = set()
    chance = random.Random(7)
    generation = 0

    def pause() -> None:
        if order == TRITON_ORDER and chance.random() < 0.15:
            time.sleep(4 * PAUSE_SECONDS)

    # Now and then it leaves all groups alone for long enough that they settle.
    while not stop.wait(pause_seconds * chance.choice((1, 1, 1, 6))):
        generation += 1
        began = time.monotonic()
        write_group(root, generation % BUSY, generation, order, pause)
        if time.monotonic() - began > 2 * PAUSE_SECONDS:
            slow.add(generation)
    return generation, slow


@contextmanager
def rewriting(
    root: Path, order: tuple[str, ...] = TRITON_ORDER
) -> Iterator[list[tuple[int, set[int]]]]:
    """Rewrite the busy groups in a thread; the list holds what it returned in the end."""
    stop = threading.Event()
    returned: list[tuple[int, set[int]]] = []
    thread = threading.Thread(target=lambda: returned.append(rewrite_until(stop, root, order)))
    thread.start()
    try:
        yield returned
    finally:
        stop.set()
        thread.join()


@contextmanager
def rewriting_process(root: Path, pause_seconds: float = PAUSE_SECONDS) -> Iterator[None]:
    """Rewrite the busy groups in a process of its own; it must not fail meanwhile."""
    words = ("-m", "tests.support.triton_writer", root, str(pause_seconds))
    with Child([sys.executable, *words]) as writer:
        assert writer.line() == "writing"
        yield
        assert writer.process.poll() is None
        code, _ = writer.finish()
        assert code == 0, writer.errors
    assert generation_of(GROUP, (root / key(0) / GROUP).read_bytes()) > 0  # it did rewrite


def _set_at_end_of_stdin(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


if __name__ == "__main__":
    over = threading.Event()
    threading.Thread(target=_set_at_end_of_stdin, args=(over,), daemon=True).start()
    print("writing", flush=True)
    rewrite_until(over, Path(sys.argv[1]), pause_seconds=float(sys.argv[2]))
