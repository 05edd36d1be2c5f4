"""One real cache at work: filled where it is made, published, fetched, and run against.

All by real processes, with the Python that the cache's compiler is installed in: each node has a
HOME, a TMPDIR and a bundle root of its own.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kinds.caches import Cache
from tests.kinds.environments import environment_of
from tests.support import other_user
from tests.support.child import REPOSITORY, Child
from tests.support.processes import Running, running

PROGRAMS = REPOSITORY / "tests" / "support" / "caches"
PROBE_SECONDS = 1500
WRITER_SECONDS = 300
"""Until the source's engine, started again, has written something: imports included."""


@dataclass(frozen=True)
class Arrival:
    """How a cache came to a node: what became of it there, or the error that refused it.

    `left_out` counts by reason what the source did not ship, files that are never shipped aside.
    """

    left_out: dict[str, int]
    roots: list[dict[str, Any]]
    error: str = ""


class Bench:
    """The nodes of one cache below `directory`. Not for several cases at a time."""

    def __init__(self, cache: Cache, directory: Path, server: str, *, small: bool) -> None:
        self.cache = cache
        self.source = directory / "source" / "cache"
        self.elsewhere = directory / "racks" / "2" / "target" / "cache"
        """Another root, of another depth."""
        self.master = directory / "master"
        self._directory = directory
        directory.chmod(0o755)  # pytest's own are for one user
        self._server = server
        self._jobs = ["--small"] if small else []
        self._nodes = 0
        self._environment = environment_of(cache)
        self._published: dict[str, Any] = {}
        self._exits = contextlib.ExitStack()

    def close(self) -> None:
        """End what still serves."""
        self._exits.close()

    # --- the cache, where it lies ---------------------------------------------------------------

    @functools.cached_property
    def cold(self) -> dict[str, Any]:
        """The run that filled the cache; done once, and what it wrote is kept aside."""
        self.source.parent.mkdir(parents=True)
        cold = self.run_program(self.source)
        assert cold["errors"] == [], cold
        assert cold["hits"] == 0, cold
        copy_tree(self.source, self.master)
        return cold

    def restore(self) -> None:
        """Put the filled cache at the source's place, times and all, and nothing elsewhere."""
        assert self.cold
        for place in (self.source, self.elsewhere):
            shutil.rmtree(place.parent, ignore_errors=True)
            place.parent.mkdir(parents=True)
            # Its group may write, as in a volume that a container under a random user id mounts.
            place.parent.chmod(0o775)
        copy_tree(self.master, self.source)

    # --- programs -------------------------------------------------------------------------------

    def run_program(self, place: Path, *jobs: str, as_other_user: bool = False) -> dict[str, Any]:
        """Run the cache's program on `place` as a process of a fresh node; return its result.

        A process that died gives no jobs, and says so in `errors`.
        """
        directory = self._fresh_node()
        command = [str(self._environment.python), str(PROGRAMS / self.cache.program)]
        command += jobs or self._jobs
        if as_other_user:
            for path in (directory, *directory.iterdir()):
                os.chown(path, other_user.UID, other_user.GID)
            command = other_user.as_other_user(command, self._needed_by_programs())
        env = self._variables(directory, place)
        with Child(command, env=env, cwd=directory) as program:
            code, out = program.finish(PROBE_SECONDS)
            if code:
                error = f"exit code {code}: {' '.join(program.errors[-500:].split())}"
                return {"jobs": 0, "hits": 0, "recompiled": 0, "errors": [error], "seconds": 0.0}
        result: dict[str, Any] = json.loads(out.splitlines()[-1])
        return result

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Let the source's engine compile more inside of the block, whose end kills it."""
        before = set(self.source.rglob("*"))
        directory = self._fresh_node()
        program = str(PROGRAMS / self.cache.program)
        command = [str(self._environment.python), program, "--more"]
        with Child(command, env=self._variables(directory, self.source)) as writer:
            deadline = time.monotonic() + WRITER_SECONDS
            while set(self.source.rglob("*")) <= before:
                assert writer.process.poll() is None, writer.errors[-2000:]
                assert time.monotonic() < deadline, "it writes nothing"
                time.sleep(0.05)
            yield
            assert writer.process.poll() is None, "it has too few jobs to write all the while"

    def _needed_by_programs(self) -> list[Path]:
        python = self._environment.python
        prefixes = (python.parents[1], python.resolve().parents[1])
        return [*prefixes, PROGRAMS, self._directory]

    def _fresh_node(self) -> Path:
        """Make the directories of a node that shares nothing with the others."""
        self._nodes += 1
        directory = self._directory / "nodes" / str(self._nodes)
        for name in ("home", "tmp"):
            (directory / name).mkdir(parents=True)
        return directory

    def _variables(self, directory: Path, place: Path) -> dict[str, str]:
        return {
            **self._environment.variables,
            "HOME": str(directory / "home"),
            "TMPDIR": str(directory / "tmp"),
            "MX_SERVER_ADDRESS": self._server,
            **self.cache.variables(place),
        }

    # --- the product ----------------------------------------------------------------------------

    def publish(self, case: str = "as made") -> str:
        """Publish what lies at the source's place; return the model's name that it goes by.

        It serves until the bench is closed, and is published once a `case`.
        """
        model = f"kinds/{self.cache.name}/{case.replace(' ', '-')}"
        if model not in self._published:
            process = self._exits.enter_context(self._command("publish", model, self.source))
            published = process.expect("result")
            if published is None:
                self._published[model] = {"error": process.end()[1]["message"]}
            else:
                [self._published[model]] = published["published"]
                root = self._published[model]["roots"][0]["path"]
                assert root == str(self.cache.root(self.source))
        return model

    def hide_source(self) -> None:
        """Take the source's cache away, so that nobody finds it under its name."""
        self.source.rename(self.source.with_name("hidden"))

    def fetch(self, model: str, place: Path, *args: str) -> Arrival:
        """Fetch and install at `place`."""
        published = self._published[model]
        if "error" in published:
            return Arrival({}, [], f"not published: {published['error']}")
        with self._command("fetch-and-install", model, place, *args) as process:
            code, said = process.end()
        if code:
            return Arrival({}, [], f"not installed: {said['message']}")
        left_out: dict[str, int] = {}
        for root in published["roots"]:
            for reason, group in root["skipped"].items():
                if not reason.startswith("excluded by"):
                    left_out[reason] = left_out.get(reason, 0) + group["count"]
        roots = said["installed"][0]["roots"]
        assert roots[0]["path"] == str(self.cache.root(place))
        return Arrival(left_out, roots)

    def _command(self, verb: str, model: str, place: Path, *args: str) -> Running:
        directory = self._fresh_node()
        stated = [
            word
            for name, value in self.cache.stated.items()
            for word in ("--identity", f"{name}={value}")
        ]
        for name, path in self.cache.more_roots(place).items():
            stated += ["--root", f"{self.cache.kind}/{name}={path}"]
        return running(
            *(verb, "--kind", self.cache.kind, "--model", model, *stated, *args),
            *("--bundle-root", str(directory / "bundles")),
            env=self._variables(directory, place),
            logs=directory,
            command=(str(self._environment.python), "-m", "mx_artifact_cli"),
        )


def copy_tree(source: Path, target: Path, *, keep: str = "all") -> None:
    """Copy a cache as `cp -a` does, or with `keep` "mode" as `cp -r`: all times are of now."""
    options = ["-a"] if keep == "all" else ["-r", f"--preserve={keep}"]
    subprocess.run(["cp", *options, str(source), str(target)], check=True)
