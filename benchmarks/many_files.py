"""What a file costs where many are done in one call: in C, and in the Python beside it.

    python -m benchmarks.many_files [--files 12000] [--bytes 5000] [--rounds 5]

Prints microseconds per file, the least of the rounds, in a tmpfs. ADR 0020 has the results.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

from mx_artifacts.bulk import library as bulk
from mx_artifacts.bulk.create import Making, NewFiles, create_files
from mx_artifacts.bulk.headers import MemberColumns, first_headers
from mx_artifacts.bulk.library import Absence, absence, library
from mx_artifacts.bulk.read import read_files
from mx_artifacts.bulk.status import stamp_columns
from mx_artifacts.bundle.headers import encode_member, padding_bytes
from mx_artifacts.bundle.index import map_bundle
from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.core.member_index import MemberIndex

FILES_IN_DIRECTORY = 8


class ManyFiles:
    """The files, and what is done to them."""

    def __init__(self, place: Path, count: int, size: int) -> None:
        self.place = place
        self.paths = [
            f"{n // FILES_IN_DIRECTORY:06d}/{n % FILES_IN_DIRECTORY}" for n in range(count)
        ]
        self.content = bytearray(os.urandom(size))
        self.checksum = crc32c(self.content)
        self.space = memoryview(bytearray(size * count))
        self.starts = array("q", range(0, size * count, size))
        self.sizes = array("q", [size] * count)
        self.index = self._index(count, size)

    def _index(self, count: int, size: int) -> MemberIndex:
        directories = sorted({path.partition("/")[0] for path in self.paths})
        members = sorted(
            [*((path, False) for path in self.paths), *((d, True) for d in directories)]
        )
        return MemberIndex(
            [path for path, _ in members],
            [is_dir for _, is_dir in members],
            [0 if is_dir else size for _, is_dir in members],
            [0o755 if is_dir else 0o644 for _, is_dir in members],
            [0] * len(members),
            [0 if is_dir else self.checksum for _, is_dir in members],
        )

    @contextmanager
    def opened(self, root: Path) -> Iterator[int]:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def make_directories(self) -> Path:
        """Return a new tree without files."""
        root = Path(tempfile.mkdtemp(dir=self.place))
        for path in self.paths[::FILES_IN_DIRECTORY]:
            (root / path).parent.mkdir()
        return root

    def create(self, root: Path, threads: int = 1) -> None:
        """Make all files."""
        count = len(self.paths)

        def make(first: int) -> None:
            part = slice(first, first + -(-count // threads))
            paths = self.paths[part]
            zeros, modes = array("q", bytes(8 * len(paths))), array("q", [0o644] * len(paths))
            files = NewFiles(paths, zeros, self.sizes[part], modes, zeros)
            create_files(descriptor, files, memoryview(self.content), Making(None, 0))

        with self.opened(root) as descriptor:
            starts = range(0, count, -(-count // threads))
            workers = [threading.Thread(target=make, args=(first,)) for first in starts]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

    def look(self, root: Path) -> None:
        """Look at all files, in one thread."""
        with patch("mx_artifacts.bulk.status.thread_count", lambda: 1):
            stamp_columns(str(root), self.paths)

    def read(self, root: Path) -> None:
        """Read and checksum all files."""
        with self.opened(root) as descriptor:
            read_files(descriptor, self.paths, self.space, self.starts, self.sizes)

    def headers(self) -> None:
        """Make all members' headers."""
        fields = self.index.columns()[:5]
        if not first_headers(MemberColumns(*fields)):
            for path, is_dir, size, mode, mtime_ns in zip(*fields, strict=True):
                encode_member(path, is_dir=is_dir, size=size, mode=mode, mtime_ns=mtime_ns)

    def map(self, length: int, checksum: str) -> None:
        """Check the member index."""
        map_bundle(self.index, length, checksum)

    def sealed(self) -> tuple[int, str]:
        """Return the length and checksum of the bundle that the index is of."""
        checksum = length = 0
        for path, is_dir, size, mode, _, _ in zip(*self.index.columns(), strict=True):
            header = encode_member(path, is_dir=is_dir, size=size, mode=mode, mtime_ns=0)
            padded = header + self.content[:size] + bytes(padding_bytes(size))
            checksum, length = crc32c(padded, checksum), length + len(padded)
        end = bytes(1024)
        return length + len(end), crc32c_hex(crc32c(end, checksum))


@contextmanager
def done_in(way: str) -> Iterator[None]:
    """Do it in "C" or in "Python"."""
    if way == "C":
        yield
        return
    with patch.object(bulk, "absence", lambda: Absence("measured without it", "")):
        library.cache_clear()
        yield
    library.cache_clear()


def measure(files: ManyFiles, rounds: int) -> dict[str, dict[str, float]]:
    """Return microseconds per file by what is done and in what."""
    bundle = files.sealed()
    least: dict[str, dict[str, float]] = {}

    def timed(what: str, way: str, work: Callable[[], object]) -> None:
        started = time.perf_counter()
        work()
        taken = (time.perf_counter() - started) / len(files.paths) * 1e6
        of_it = least.setdefault(what, {})
        of_it[way] = min(taken, of_it.get(way, taken))

    for _ in range(rounds):
        for way in ("C", "Python"):
            one, two = files.make_directories(), files.make_directories()
            with done_in(way):
                timed("create and write it", way, partial(files.create, one))
                timed("the same, by two threads", way, partial(files.create, two, 2))
                timed("look at it", way, partial(files.look, one))
                timed("read and checksum it", way, partial(files.read, one))
                timed("make its header", way, files.headers)
                timed("check and map it in an index", way, lambda: files.map(*bundle))
            shutil.rmtree(one)
            shutil.rmtree(two)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=12_000)
    parser.add_argument("--bytes", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if missing := absence():
        parser.exit(1, f"the compiled part is not used: {missing.why}\n")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        least = measure(ManyFiles(Path(place), options.files, options.bytes), options.rounds)
    print("| per file [us] | C | Python |\n|---|---|---|")
    for what, ways in least.items():
        print(f"| {what} | {ways['C']:.1f} | {ways['Python']:.1f} |")


if __name__ == "__main__":
    main()
