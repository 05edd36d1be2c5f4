"""Network namespaces on one machine, joined by links of a stated rate, for nodes to run in.

Each node's namespace has one end of a veth pair; the other ends are ports of a bridge in a router
namespace, whose own address has no limit. Both ends shape what they send, so a link carries its
rate up and, at the same time, down. All names begin with the process id that made them, by which a
later run finds and removes what a killed one left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "mxb"
_SUBNET = "10.77.0"
MOST_LINKS = 200
_BURST_KIB = 256
"""Several packets of 64 KiB, which is what the kernel hands over at once."""
_QUEUE_MS = 40
"""Waits at a full link before it is dropped; as long as a switch would let it."""
_DEVICE = "eth0"
UCX_OVER_TCP: Mapping[str, str] = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": _DEVICE}
"""Without it UCX reads memory of a process on the same machine past every link."""


class NoNetworkError(Exception):
    """This machine does not let us make namespaces or shape links; says what failed."""


@dataclass(frozen=True)
class Place:
    """A namespace, and the address of what runs in it."""

    namespace: str
    address: str

    def enter(self, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` there, in a process of the same id."""
        return ["ip", "netns", "exec", self.namespace, *command]


@dataclass(frozen=True)
class Network:
    """A router, and nodes on links of `mbit` [Mbit/s] each way."""

    router: Place
    nodes: Sequence[Place]
    mbit: float

    def least_seconds(self, size_bytes: int) -> float:
        """Return how long so many bytes need over one link, at the very least.

        What the shaper lets through at once is not counted, nor are the packets' headers.
        """
        return max(0, size_bytes - (_BURST_KIB << 10)) * 8 / (self.mbit * 1e6)


@contextlib.contextmanager
def network(nodes: int, mbit: float) -> Iterator[Network]:
    """Make a router and so many nodes; they go with the block, and all that still runs in them.

    Raises:
        NoNetworkError
    """
    if not 0 < nodes <= MOST_LINKS:
        raise ValueError(f"{nodes} nodes; there may be {MOST_LINKS}")
    if missing := [program for program in ("ip", "tc") if shutil.which(program) is None]:
        raise NoNetworkError(f"{' and '.join(missing)} (iproute2) is not installed")
    remove_left_behind()
    names = [f"{_PREFIX}-{os.getpid()}-{number}" for number in range(nodes + 1)]
    router, *others = [Place(name, f"{_SUBNET}.{number + 1}") for number, name in enumerate(names)]
    try:
        _make_router(router)
        for number, node in enumerate(others):
            _make_node(node, router, f"port{number}", mbit)
        yield Network(router, others, mbit)
    finally:
        for name in names:
            _remove(name)


def _make_router(router: Place) -> None:
    _run("ip", "netns", "add", router.namespace)
    _configure(
        router,
        "ip link set lo up",
        "ip link add bridge type bridge",
        f"ip address add {router.address}/24 dev bridge",
        "ip link set bridge up",
    )


def _make_node(node: Place, router: Place, port: str, mbit: float) -> None:
    shape = f"root tbf rate {mbit:g}mbit burst {_BURST_KIB}kb latency {_QUEUE_MS}ms"
    _run("ip", "netns", "add", node.namespace)
    _configure(
        node,
        "ip link set lo up",
        f"ip link add {_DEVICE} type veth peer name {port} netns {router.namespace}",
        f"ip address add {node.address}/24 dev {_DEVICE}",
        f"ip link set {_DEVICE} up",
        f"tc qdisc add dev {_DEVICE} {shape}",
    )
    _configure(
        router,
        f"ip link set {port} master bridge",
        f"ip link set {port} up",
        f"tc qdisc add dev {port} {shape}",
    )


def _configure(place: Place, *commands: str) -> None:
    for command in commands:
        _run(*place.enter(command.split()))


def _run(*command: str) -> None:
    done = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    if done.returncode:
        said = done.stderr.strip().replace("\n", " ")
        raise NoNetworkError(f"`{' '.join(command)}` failed: {said}")


def remove_left_behind() -> None:
    """Remove the namespaces of benchmarks that were killed, and what still runs in them."""
    listed = subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, text=True)
    for line in listed.stdout.splitlines():
        name = line.split()[0]
        prefix, _, rest = name.partition("-")
        maker = rest.partition("-")[0]
        if prefix == _PREFIX and maker.isdigit() and not Path("/proc", maker).exists():
            _remove(name)


def _remove(namespace: str) -> None:
    """Remove a namespace, if it is there; its links go with it once nothing runs in it."""
    command = ("ip", "netns", "pids", namespace)
    inside = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for process in inside.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)
    subprocess.run(("ip", "netns", "delete", namespace), stderr=subprocess.DEVNULL)
