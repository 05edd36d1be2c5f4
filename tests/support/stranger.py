"""Another local user at work beside us: `python -m tests.support.stranger '<json>'`; needs root.

Fields: uid (whom to become; without it, the same user), and one of
- swap [a, b]: exchange two names over and over;
- replace: {directory, link}: move each new thing in `directory` away and put a link in its place.
It prints "ready", and goes on until its stdin is closed. Nothing that it is refused ends it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.child import Child, our_environment

UID = 4242
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def stranger(**fields: Any) -> Iterator[None]:
    """Let one work meanwhile."""
    words = ("-m", "tests.support.stranger", json.dumps(fields, default=str))
    env = our_environment({"PATH": os.environ.get("PATH", "")})
    with Child([sys.executable, *words], env=env) as child:
        assert child.line() == "ready"
        try:
            yield
        finally:
            child.finish()


def give(path: Path, uid: int = UID) -> None:
    """Give a tree to a stranger."""
    os.lchown(path, uid, uid)
    for parent, directories, files in os.walk(path):
        for name in (*directories, *files):
            os.lchown(os.path.join(parent, name), uid, uid)


def _swap(one: str, two: str) -> None:
    rename = ctypes.CDLL(None, use_errno=True).renameat2
    for _ in range(50):
        rename(_AT_FDCWD, one.encode(), _AT_FDCWD, two.encode(), _RENAME_EXCHANGE)


def _replace(directory: str, link: str) -> None:
    with suppress(OSError):
        for entry in os.scandir(directory):
            if not entry.is_symlink() and not entry.name.endswith(".away"):
                with suppress(OSError):
                    os.rename(entry.path, f"{entry.path}.away")
                    os.symlink(link, entry.path)


def main() -> None:
    fields = json.loads(sys.argv[1])
    if "uid" in fields:
        os.setgroups([])
        os.setgid(fields["uid"])
        os.setuid(fields["uid"])
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        if "swap" in fields:
            _swap(*fields["swap"])
        else:
            _replace(**fields["replace"])


if __name__ == "__main__":
    main()
