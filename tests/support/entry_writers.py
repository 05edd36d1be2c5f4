"""Writes cache entries again and again, in the ways of the compilers other than Triton.

Who writes what, in which order, by rename or in place and under which lock is what
docs/cache-facts.md says of each kind. Every file tells its generation.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tests.support.kind_trees import shared_library

ARTIFACTS = tuple(f"artifact_compile_range_1_8192_subgraph_{number}" for number in range(3))
_STAMP = re.compile(rb"generation (\d{6})")

Pause = Callable[[], None]
Files = Mapping[str, bytes]
"""By their names below the entry, in the order in which they are written."""


def stamp(generation: int) -> bytes:
    return b"generation %06d " % generation


def generation_of(files: Files) -> int:
    """Return the generation of the files of an entry, which must be of one."""
    found = {int(each) for content in files.values() for each in _STAMP.findall(content)}
    assert len(found) == 1, f"mixed of generations {found}"
    return found.pop()


@dataclass(frozen=True)
class Compiler:
    """One compiler's way with the entries of its cache.

    `write` writes the files of an entry to its place, where an earlier generation may be: given
    the root, the entry, the files and what to call between any two steps.
    """

    kind: str
    entry: str
    """With {} for a number that tells the entries apart, as long as a SHA-256 is."""
    files: Callable[[int], Files]
    write: Callable[[Path, str, Files, Pause], None]
    removes: bool = False
    """An entry goes away for a while when it is written anew."""

    def entry_of(self, number: int) -> str:
        return self.entry.format(sha256(bytes([number])).hexdigest())


# --- their ways -----------------------------------------------------------------------------------


def by_rename(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"tmp.{os.getpid()}.{threading.get_ident()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def in_place(path: Path, content: bytes, pause: Pause) -> None:
    """As `open(path, "w")`, compilers and linkers do: empty, then half, then whole."""
    with path.open("wb", buffering=0) as file:
        for part in (content[: len(content) // 2], content[len(content) // 2 :]):
            pause()
            file.write(part)


@contextmanager
def holding(lock: Path) -> Iterator[None]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def staged_in(staging: str) -> Callable[[Path, str, Files, Pause], None]:
    """TileLang, DeepGEMM: written elsewhere below the root and renamed as a whole.

    Neither writes over an entry: TileLang removes one that is damaged, else an operator does.
    """

    def write(root: Path, entry: str, files: Files, pause: Pause) -> None:
        private = root / staging / os.urandom(4).hex()
        private.mkdir(parents=True)
        for name, content in files.items():
            in_place(private / name, content, pause)
        remove(root / entry, pause)
        (root / entry).parent.mkdir(parents=True, exist_ok=True)
        private.rename(root / entry)

    return write


def remove(directory: Path, pause: Pause) -> None:
    """Remove it as `rm -r` does, one name after the other."""
    for path in sorted(directory.iterdir()) if directory.exists() else ():
        path.unlink()
        pause()
    if directory.exists():
        directory.rmdir()


def take_away(root: Path, entry: str) -> None:
    """Remove it at once, as whoever wants to wipe a live cache should."""
    if (root / entry).exists():
        (root / entry).rename(root / "tmp.wiped")
        shutil.rmtree(root / "tmp.wiped")


def built_under(lock: str) -> Callable[[Path, str, Files, Pause], None]:
    """ninja's compiler and linker: in place, all of it under a lock beside or in the module."""

    def write(root: Path, entry: str, files: Files, pause: Pause) -> None:
        directory, name = (root / entry).parent, (root / entry).name
        (root / entry).mkdir(parents=True, exist_ok=True)
        with holding(directory / lock.format(name)):
            pause()
            for file, content in files.items():
                if file.endswith(".so"):  # ld makes a new file
                    (root / entry / file).unlink(missing_ok=True)
                in_place(root / entry / file, content, pause)

    return write


def cute_kernels(root: Path, entry: str, files: Files, pause: Pause) -> None:
    """FlashInfer's CuTe kernels: those of other sources go; each file by rename, meta.json last."""
    with holding((root / entry).parent / "tmp" / f"{Path(entry).name}.lock"):
        take_away(root, entry)
        (root / entry).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            pause()
            by_rename(root / entry / name, content)


def library_in_place(root: Path, entry: str, files: Files, pause: Pause) -> None:
    """Inductor's libraries: linked in place, under a lock of their key."""
    directory, key = (root / entry).parent, Path(entry).name.partition(".")[0]
    directory.mkdir(parents=True, exist_ok=True)
    with holding(directory.parent / "locks" / f"{key}.lock"):
        pause()
        in_place(root / entry, files[""], pause)


def vllm_artifacts(root: Path, entry: str, files: Files, pause: Pause) -> None:
    """Artifacts by rename, and last the index, plainly; vLLM itself writes no entry anew."""
    take_away(root, entry)
    for name, content in files.items():
        path = root / entry / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name in ARTIFACTS:
            by_rename(path, content)
            pause()
        else:
            in_place(path, content, pause)


def vllm_model(root: Path, entry: str, files: Files, pause: Pause) -> None:
    """Inductor's cache first, then the rank's model by rename."""
    take_away(root, entry)
    for name, content in files.items():
        path = root / entry / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".so"):
            library_in_place(root, f"{entry}/{name}", {"": content}, pause)
        else:
            by_rename(path, content)
        pause()


# --- what they write ------------------------------------------------------------------------------


def _plain(*names: str) -> Callable[[int], Files]:
    """Files that only have to be there; a library is one."""

    def files(generation: int) -> Files:
        text = stamp(generation) * 40
        return {name: shared_library(text) if name.endswith(".so") else text for name in names}

    return files


def _tilelang_files(generation: int) -> Files:
    files = _plain("device_kernel.cu", "host_kernel.cu", "executable.so", "params.json")(generation)
    promised = {
        name: {"size": len(content), "sha256": sha256(content).hexdigest()}
        for name, content in files.items()
    }
    return {**files, "manifest.json": json.dumps({"version": 1, "files": promised}).encode()}


def _deep_jit_files(generation: int) -> Files:
    return {**_plain("kernel.cu", "kernel.cubin", "meta.json")(generation), ".committed": b""}


def _cute_files(generation: int) -> Files:
    meta = {"arch": "sm_90a", "source_sha256": stamp(generation).decode()}
    return {**_plain("norm.o", "page.o")(generation), "meta.json": json.dumps(meta).encode()}


def _vllm_artifact_files(generation: int) -> Files:
    """Not what says how it was compiled: that is there before, and may arrive alone."""
    rank = "rank_0_0/backbone"
    index = {
        ((1, 8192), number, "inductor"): {"graph_handle": (name, f"/made/here/{name}")}
        for number, name in enumerate(ARTIFACTS)
    }
    made = {"made": stamp(generation).decode()}
    text = repr(dict([*index.items(), *made.items()])).encode()
    files = _plain(*(f"{rank}/{name}" for name in ARTIFACTS))(generation)
    return {**files, f"{rank}/vllm_compile_cache.py": text}


_MODULE = ("build.ninja", "cpp_0.o", ".ninja_deps", ".ninja_log", "module.so")
_INDUCTOR = "inductor_cache/nf/cnf5npvj6onchkpeh5elc4g6gnfzndebqpwltment5ocu63k2utb.main.so"

COMPILERS = {
    "TileLang": Compiler(
        *("tilelang", "0.1.15/linux-x86_64/kernels/{}", _tilelang_files),
        staged_in("0.1.15/linux-x86_64/.staging"),
        removes=True,
    ),
    "DeepJIT": Compiler(
        "deep_gemm", "cache/gemm.{}", _deep_jit_files, staged_in("tmp"), removes=True
    ),
    "DeepGEMM 2.x": Compiler(
        *("deep_gemm", "cache/kernel.gemm.{}", _plain("kernel.cu", "kernel.cubin")),
        staged_in("tmp"),
        removes=True,
    ),
    "TVM-FFI": Compiler("tvm_ffi", "add_{}", _plain(*_MODULE), built_under("{}/lock")),
    "FlashInfer": Compiler(
        *("flashinfer", "0.7.4/90a/cached_ops/norm_{}", _plain(*_MODULE)),
        built_under("tmp/{}.lock"),
    ),
    "FlashInfer's CuTe kernels": Compiler(
        "flashinfer", "0.7.4/90a/cached_ops/{}_cute_dsl", _cute_files, cute_kernels, removes=True
    ),
    "Inductor's libraries": Compiler(
        "inductor", "nf/{}.main.so", lambda each: {"": shared_library(stamp(each) * 40)},
        library_in_place,
    ),
    "vLLM's artifacts": Compiler(
        "inductor", "{:.10}", _vllm_artifact_files, vllm_artifacts, removes=True
    ),
    "vLLM's models": Compiler(
        *("inductor", "torch_aot_compile/{}"),
        _plain(_INDUCTOR, "inductor_cache/fxgraph/wf/f1/a", "rank_0_0/model"),
        vllm_model,
        removes=True,
    ),
}  # fmt: skip


# --- for as long as a test likes ------------------------------------------------------------------


@contextmanager
def compiling(compiler: Compiler, root: Path, numbers: range) -> Iterator[list[int]]:
    """Write these entries in turn in a thread; the list holds the generations that were written.

    It stays between two steps for no time, or for longer than a packer takes a file for fresh.
    """
    chance = random.Random(7)
    over = threading.Event()
    written: list[int] = []

    def pause() -> None:
        time.sleep(0.08 if chance.random() < 0.1 else 0.001)

    def run() -> None:
        generation = 0
        while not over.wait(chance.choice((0.0, 0.02, 0.15))):
            generation += 1
            entry = compiler.entry_of(numbers[generation % len(numbers)])
            compiler.write(root, entry, compiler.files(generation), pause)
            written.append(generation)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield written
    finally:
        over.set()
        thread.join()
