"""Which transport two nodes use, and what happens when it cannot be used; real processes."""

from __future__ import annotations

import dataclasses
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from mx_artifacts.errors import PeerLostError, TransferFailedError, TransportError
from mx_artifacts.transport.stream.frames import StreamDescriptor
from mx_artifacts.transport.stream.transport import StreamTransport
from tests.support.fleet import Fleet, fill_cache, running_fleet
from tests.support.install_cases import contents
from tests.support.nodes import Cluster, warm_cache

NIXL = {"MX_TRANSPORT": "nixl"}
NATIVE = ("libucp", "libuct", "libucs", "libucm", "nixl", "libibverbs", "librdmacm")


def native_libraries(pid: int) -> set[str]:
    """Return which libraries of NIXL and UCX a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    mapped = {line.partition("/")[2] for line in lines if "/" in line}
    return {path for path in mapped if any(name in path for name in NATIVE)}


def listening(pid: int) -> set[tuple[str, int]]:
    """Return the (address, port) pairs that a process listens at, by TCP or UDP."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(link.readlink()))
        except OSError:
            continue
    found = set()
    for table, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state and f"socket:[{fields[9]}]" in inodes:
                host, _, port = fields[1].partition(":")
                packed = bytes.fromhex(host)[::-1]
                is_mapped = host.startswith("0000000000000000FFFF0000")
                shown = socket.inet_ntoa(packed[:4]) if len(packed) == 4 or is_mapped else host
                found.add((shown, int(port, 16)))
    return found


def transports_of(receipt_path: str) -> str:
    receipt = json.loads(Path(receipt_path).read_text())
    transport: str = receipt["artifact"]["transport"]
    return transport


def fetched_by(cluster: Cluster, root: Path, **env: str) -> str:
    """Fetch; return which transport the receipt names."""
    code, result = cluster.fetch(root, **env)
    assert code == 0, result
    return transports_of(result["installed"][0]["receipt"])


def test_by_default_no_native_code_is_loaded_and_only_the_documented_ports_are_open(
    cluster: Cluster, tmp_path: Path
) -> None:
    cache = warm_cache(tmp_path / "large", size_bytes=4_000_000, files=10)
    with cluster.source(cache, "--max-rate", "1MiB") as source:
        port = int(source.ready["published"][0]["endpoint"].rpartition(":")[2])
        with cluster.target(tmp_path / "cold") as target:
            assert target.expect("transfer.started")
            pids = {"source": source.process.pid, "target": target.process.pid}
            assert {name: native_libraries(pid) for name, pid in pids.items()} == {
                "source": set(),
                "target": set(),
            }
            assert listening(pids["target"]) == set()
            ports = listening(pids["source"])
            assert {host for host, _ in ports} == {"127.0.0.1"}
            assert port in {number for _, number in ports}
            assert len(ports) == 2  # the worker's service and its stream
            assert target.end()[0] == 0


@pytest.mark.parametrize(
    ("here", "there", "by"),
    [({}, {}, "stream"), (NIXL, {}, "stream"), ({}, NIXL, "stream"), (NIXL, NIXL, "nixl")],
    ids=["both-auto", "target-nixl", "source-nixl", "both-nixl"],
)
def test_nodes_agree_on_what_both_have(
    cluster: Cluster,
    cache: Path,
    tmp_path: Path,
    here: Mapping[str, str],
    there: Mapping[str, str],
    by: str,
) -> None:
    with cluster.source(cache, **there) as source:
        assert fetched_by(cluster, tmp_path / "cold", **here) == by
        assert ("can read and write all of its memory" in source.errors) == bool(there)


# --- a source whose data port nobody reaches -----------------------------------------------------


class Unreachable(StreamTransport):
    """A source whose stream port is another one, at which nobody answers."""

    port = 0

    def descriptor(self) -> bytes:
        parsed = StreamDescriptor.decode(super().descriptor())
        return dataclasses.replace(parsed, port=self.port).encode()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with running_fleet(tmp_path) as fleet:
        yield fleet


MakeSilent = Callable[[bool], int]


@pytest.fixture
def dead_port() -> Iterator[MakeSilent]:
    """Give a function that returns a port that drops what comes, or takes it and never answers."""
    with ExitStack() as resources:

        def make(drops: bool) -> int:
            listener = resources.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen(0 if drops else 100)
            for _ in range(2 if drops else 0):
                queued = resources.enter_context(socket.socket())
                queued.setblocking(False)
                queued.connect_ex(listener.getsockname())
            port: int = listener.getsockname()[1]
            return port

        yield make


def by_stream() -> StreamTransport:
    return StreamTransport("target")


@pytest.mark.parametrize("drops", [True, False], ids=["dropped", "silent"])
def test_an_unreachable_source_does_not_delay_healthy_ones(
    fleet: Fleet, tmp_path: Path, dead_port: MakeSilent, drops: bool
) -> None:
    cache = fill_cache(tmp_path / "warm", large=20 << 20)
    unreachable = Unreachable("unreachable")
    unreachable.port = dead_port(drops)
    fleet.publish(cache, unreachable)
    fleet.publish(cache, StreamTransport("healthy"))
    for number in range(3):
        fetcher = fleet.fetcher(by_stream, timeout_seconds=60.0)
        fleet.fetch(fetcher, tmp_path / f"cold-{number}")
        assert contents(tmp_path / f"cold-{number}") == contents(cache)


@pytest.mark.parametrize("drops", [True, False], ids=["dropped", "silent"])
def test_a_fetch_from_an_unreachable_source_ends_within_its_timeout(
    fleet: Fleet, tmp_path: Path, dead_port: MakeSilent, drops: bool
) -> None:
    cache = fill_cache(tmp_path / "warm")
    unreachable = Unreachable("unreachable")
    unreachable.port = dead_port(drops)
    fleet.publish(cache, unreachable)
    fetcher = fleet.fetcher(by_stream, timeout_seconds=15.0)
    with pytest.raises((TransportError, TransferFailedError)) as raised:
        fleet.fetch(fetcher, tmp_path / "cold")
    assert not isinstance(raised.value, PeerLostError) or "MX_WORKER_STREAM_PORT" in (
        raised.value.hint()
    )
