"""Modules whose build files do harm to who shows them to ninja, and a process that judges them.

usage: python -m tests.support.hostile_modules STAGED ROOT MEMORY_BYTES
Makes what is staged right for a root, then judges what is in the root, in so much memory; prints
{"dropped": {module: reason}, "faults": …, "doubts": …} as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.kind_trees import shared_library

LOG = b"# ninja log v7\n"
DEPS = b"# ninjadeps\n\4\0\0\0"
RULE = "rule r\n  command = x\n"
BUILD = "build o: r i\n"

# What each build file has, and the construct that its refusal names. VICTIM is a file, PLACE a
# directory, both outside of the module.
BUILD_FILES: dict[str, tuple[str, str]] = {
    "rspfile": (f"{RULE}  rspfile = VICTIM\n  rspfile_content = y\n{BUILD}", "rspfile"),
    "rspfile_above": (f"rspfile = VICTIM\nrspfile_content = y\n{RULE}{BUILD}", "rspfile"),
    "rspfile_of_one": (f"{RULE}{BUILD}  rspfile = VICTIM\n  rspfile_content = y\n", "rspfile"),
    "rspfile_relative": (f"{RULE}  rspfile = RELATIVE\n  rspfile_content = y\n{BUILD}", "rspfile"),
    "depfile": (f"{RULE}  depfile = PLACE/made/d\n  deps = gcc\n{BUILD}", "depfile"),
    "depfile_relative": (f"{RULE}  depfile = ../made/d\n  deps = gcc\n{BUILD}", "depfile"),
    "depfile_read": (f"{RULE}  depfile = FIFO\n{BUILD}", "depfile"),
    "dyndep": (f"{RULE}{BUILD}  dyndep = FIFO\n", "dyndep"),
    "output": (f"{RULE}build PLACE/made/o: r i\n", "outside its directory"),
    "output_relative": (f"{RULE}build ../made/o: r i\n", "the path '../made/o'"),
    "output_of_ninja": (f"{RULE}build .ninja_log: r i\n", "ninja's own"),
    "include": ("include $\n  FIFO\n", "include"),
    "subninja": (f"a = b$\n $\n\nsubninja FIFO\n{RULE}", "subninja"),
    "builddir": (f"builddir $\n = PLACE/made\n{RULE}{BUILD}", "builddir"),
    "generator": (f"{RULE}  generator = 1\nbuild build.ninja: r i\n", "generator"),
    "restat": (f"{RULE}  restat = 1\n{BUILD}", "restat"),
    "pool": (f"pool p\n  depth = 1\n{RULE}  pool = p\n{BUILD}", "pool"),
    "bomb": (
        f"a = {'x' * 14_000}\nb = {'$a' * 7_000}\nc = $b$b$b$b$b$b$b$b$b$b\n{RULE}{BUILD}",
        "expands to more than",
    ),
    "doubling_bomb": (
        "v0 = xxxxxxxx\n" + "".join(f"v{n + 1} = $v{n}$v{n}\n" for n in range(64)) + RULE + BUILD,
        "expands to more than",
    ),
    "command_bomb": (
        f"a = {'x' * 100_000}\nrule r\n  command = $a\n"
        + "".join(f"build o{n}: r i\n" for n in range(9_000)),
        "expand to more than",
    ),
    "long_line": (f"{RULE}{BUILD}a = " + "x" * 1_000_000 + "\n", "expands to more than"),
    "long_name": ("n" * 1_000_000 + " = x\n", "builds nothing"),
    "nul": (f"{RULE}{BUILD}a = b\0c\n", r"the byte b'\x00'"),
    "not_utf_8": (f"{RULE}{BUILD}a = \udcff\udcfe\n", "not UTF-8"),
    "no_end": (f"{RULE}{BUILD}a = b", "the end of the file"),
    "too_long": ("a = b\n" * 1_000_000, "longer than"),
}


def make_modules(root: Path, outside: Path) -> Path:
    """Write all of them as modules below `root`, each one whole; `outside` has what they aim at.

    A FIFO lies beside that.
    """
    victim, place, fifo = outside / "victim", outside / "place", Path(f"{outside}.fifo")
    place.mkdir(parents=True)
    victim.write_text("precious")
    os.mkfifo(fifo)
    for name, (text, _) in BUILD_FILES.items():
        module = root / name
        relative = os.path.relpath(victim, module)
        for word, path in (("VICTIM", victim), ("PLACE", place), ("FIFO", fifo)):
            text = text.replace(word, str(path))
        write_module(module, os.fsencode(text.replace("RELATIVE", relative)))
    return root


def write_module(module: Path, build: bytes, log: bytes = LOG, deps: bytes = DEPS) -> Path:
    """Write a module that is whole but for what its build file says."""
    module.mkdir(parents=True)
    files = {"i": b"", "o": b"", "build.ninja": build, ".ninja_log": log, ".ninja_deps": deps}
    files |= {"m.o": b"object", "m.so": shared_library()}
    for name, content in files.items():
        (module / name).write_bytes(content)
    return module


def _replace(name: str, make: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    def change(module: Path, outside: Path) -> None:
        (module / name).unlink()
        make(module / name, outside)

    return change


def _link(to: str) -> Callable[[Path, Path], None]:
    return lambda path, outside: path.symlink_to(outside / to)


def _fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def _zeros(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/zero")


def _sparse(path: Path, outside: Path) -> None:
    path.write_bytes(b"")
    os.truncate(path, 1 << 40)


ODD_FILES = {
    f"{name[1:]}_{what}": _replace(name, make)
    for name in ("build.ninja", ".ninja_log", ".ninja_deps")
    for what, make in {
        "link": _link("victim"),
        "fifo": _fifo,
        "zeros": _zeros,
        "sparse": _sparse,
    }.items()
} | {
    "d_file_link": lambda module, outside: (module / "o.d").symlink_to(outside / "victim"),
    "d_file_fifo": lambda module, outside: os.mkfifo(module / "o.d"),
}
"""What is in the place of a module's files, written by who owns the directory."""


def make_odd_modules(root: Path, outside: Path) -> Path:
    """Write modules with `ODD_FILES` below `root`."""
    for name, change in ODD_FILES.items():
        change(write_module(root / name, (RULE + BUILD).encode()), outside)
    return root


def main(staged: str, root: str, memory_bytes: str) -> None:
    """Relocate and judge, in a bounded address space."""
    resource.setrlimit(resource.RLIMIT_AS, (int(memory_bytes),) * 2)
    from mx_artifacts.kinds.existing_entries import existing_entry_judge
    from mx_artifacts.kinds.ninja.relocate import relocate_ninja_modules
    from mx_artifacts.kinds.registry import get_kind

    dropped = dict(relocate_ninja_modules(Path(staged), Path(root)).dropped)
    judge = existing_entry_judge(get_kind("tvm_ffi"))
    verdicts = {name: judge(Path(root), name, None) for name in sorted(os.listdir(root))}
    result = {
        "dropped": dropped,
        "faults": {n: each.unusable_reason for n, each in verdicts.items() if each.unusable_reason},
        "doubts": {
            n: each.unverified_reason for n, each in verdicts.items() if each.unverified_reason
        },
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
