"""A peer that serves registered memory, in a real second process or in this one.

    with peer_process("nixl", "source-1", size_bytes=1 << 20) as peer:
        transport.connect(peer.descriptor)

Its first region holds `pattern(size)`. The process takes command lines on stdin, answers in JSON
lines on stdout, and ends when its stdin closes, so that it never outlives the test.
"""

from __future__ import annotations

import itertools
import json
import os
import sys

from mx_artifacts.memory.buffers import Buffer, allocate
from mx_artifacts.transport.base import Region
from mx_artifacts.transport.registry import create_transport
from tests.support.child import Child, our_environment


def pattern(size_bytes: int, salt: int = 0) -> bytes:
    """Return bytes in which no 4 KiB page equals another, nor one of another salt."""
    block = bytes((i * 7 + salt) % 251 for i in range(4096))
    pages = -(-size_bytes // 4096)
    return b"".join(page.to_bytes(8, "big") + block[8:] for page in range(pages))[:size_bytes]


class PeerProcess(Child):
    """A serving process: where its regions are, and what a transport connects to."""

    def begin(self) -> None:
        self.read_answer()

    def read_answer(self) -> None:
        """Wait for the process to say what it serves."""
        answer = self.answer()
        self.descriptor = bytes.fromhex(answer["descriptor"])
        self.addresses: list[int] = answer["addresses"]

    def register(self, size_bytes: int, salt: int = 0) -> None:
        """Register another region, filled with `pattern(size_bytes, salt)`."""
        self.tell(f"register {size_bytes} {salt}")
        self.read_answer()

    def open_file_count(self) -> int:
        """Return how many file descriptors the process has."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def peer_process(transport: str, agent_name: str, size_bytes: int, **variables: str) -> PeerProcess:
    """Return a process with one region and `variables` in its environment, for a block."""
    arguments = (transport, agent_name, str(size_bytes))
    return PeerProcess(
        [sys.executable, "-m", "tests.support.peer_process", *arguments],
        env=our_environment() | variables,
    )


class LocalPeer:
    """The same service by an agent of this process; `kill` closes the agent."""

    def __init__(self, transport: str, agent_name: str, size_bytes: int) -> None:
        self._transport = create_transport(transport, agent_name)
        self._kept: list[tuple[Buffer, Region]] = []
        self.register(size_bytes)

    def register(self, size_bytes: int, salt: int = 0) -> None:
        """Register another region, filled with `pattern(size_bytes, salt)`."""
        buffer = allocate(size_bytes)
        buffer.view[:] = pattern(size_bytes, salt)
        self._kept.append((buffer, self._transport.register(buffer.view)))

    @property
    def addresses(self) -> list[int]:
        return [region.addr for _, region in self._kept]

    @property
    def descriptor(self) -> bytes:
        return self._transport.descriptor()

    def kill(self) -> None:
        """Close the agent under its regions, as the end of a process would."""
        self._transport.close()

    def stop(self) -> None:
        """Free everything."""
        for buffer, region in self._kept:
            region.close()
            buffer.close()
        self._transport.close()


def serve(transport_name: str, agent_name: str, size_bytes: str) -> None:
    """Register what the parent asks for, until stdin ends."""
    peer = LocalPeer(transport_name, agent_name, int(size_bytes))
    for line in itertools.chain(["describe"], sys.stdin):
        command, *arguments = line.split()
        if command == "register":
            peer.register(*map(int, arguments))
        answer = {"descriptor": peer.descriptor.hex(), "addresses": peer.addresses}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
