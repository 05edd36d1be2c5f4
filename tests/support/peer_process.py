"""A real second process that serves registered memory, driven over its stdin and stdout.

    with peer_process("nixl", "source-1", size_bytes=1 << 20) as peer:
        transport.connect(peer.descriptor)

The memory holds `pattern(size)`. Commands are lines; answers are JSON lines. The process ends when
its stdin closes, so that it never outlives the test.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def pattern(size_bytes: int, salt: int = 0) -> bytes:
    """Return bytes in which no 4 KiB page equals another."""
    block = bytes((i * 7 + salt) % 251 for i in range(4096))
    pages = -(-size_bytes // 4096)
    return b"".join(page.to_bytes(8, "big") + block[8:] for page in range(pages))[:size_bytes]


class PeerProcess:
    """The parent's handle of a serving process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.descriptor = b""
        self.addresses: list[int] = []

    def call(self, command: str) -> Any:
        """Send one command line and return its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "descriptor" in answer:
            self.descriptor = bytes.fromhex(answer["descriptor"])
            self.addresses = answer["addresses"]
        return answer

    def register(self, size_bytes: int, salt: int = 0) -> None:
        """Register another region, filled with `pattern(size_bytes, salt)`."""
        self.call(f"register {size_bytes} {salt}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End the process whatever its state."""
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def peer_process(transport: str, agent_name: str, size_bytes: int) -> Iterator[PeerProcess]:
    """Start a process with one region; end it afterwards."""
    command = [sys.executable, "-m", "tests.support.peer_process", transport, agent_name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    peer = PeerProcess(process)
    try:
        peer.register(size_bytes)
        yield peer
    finally:
        peer.stop()


def serve(transport_name: str, agent_name: str) -> None:
    """Register what the parent asks for, until stdin ends."""
    from mx_artifacts.memory.buffers import allocate
    from mx_artifacts.transport.registry import create_transport

    transport = create_transport(transport_name, agent_name)
    kept = []
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "register":
            size, salt = map(int, arguments)
            buffer = allocate(size)
            buffer.view[:] = pattern(size, salt)
            kept.append((buffer, transport.register(buffer.view)))
        addresses = [region.addr for _, region in kept]
        answer = {"descriptor": transport.descriptor().hex(), "addresses": addresses}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
