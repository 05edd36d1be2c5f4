"""RDMA devices of this node, from /sys: which ports are up, how fast, and near which memory."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

AUTO = "auto"
SYSFS = Path("/sys")


@dataclass(frozen=True)
class RdmaPort:
    """An active port of an RDMA device.

    Attributes:
        name: as UCX calls it, such as "mlx5_0:1".
        rate_gbps: of the link [Gbit/s].
        numa_node: of the device; None if the kernel does not know.
    """

    name: str
    rate_gbps: float
    numa_node: int | None


def active_ports(sysfs: Path = SYSFS) -> list[RdmaPort]:
    """Return the ports that are up, sorted by name. A port that cannot be read is left out."""
    found = []
    for port in sorted(sysfs.glob("class/infiniband/*/ports/*")):
        device = port.parent.parent
        with suppress(OSError, ValueError):
            if "ACTIVE" not in _text(port / "state"):  # "4: ACTIVE"
                continue
            rate = float(_text(port / "rate").split()[0])  # "400 Gb/sec (4X NDR)"
            found.append(RdmaPort(f"{device.name}:{port.name}", rate, _numa_node(device)))
    return found


def near_ports(min_rate_gbps: float, cpus: set[int], sysfs: Path = SYSFS) -> list[RdmaPort]:
    """Return the active ports of at least this rate that are nearest to the memory of `cpus`.

    Those on the NUMA nodes of these CPUs, if there are any; else all that are fast enough.
    """
    fast = [port for port in active_ports(sysfs) if port.rate_gbps >= min_rate_gbps]
    nodes = {node for node, members in _cpus_by_node(sysfs).items() if members & cpus}
    near = [port for port in fast if port.numa_node in nodes]
    return near or fast


def pinned_devices(
    pin: Sequence[str], min_rate_gbps: float, sysfs: Path = SYSFS
) -> tuple[str, ...]:
    """Return the devices that MX_RDMA_NIC_PIN means; none: whoever asks chooses.

    Caches are in the host's memory. So with "auto" the devices are those near the CPUs on which
    this process may run. If a launcher binds each rank to the CPUs near its GPU, the ranks use
    different devices.
    """
    if tuple(pin) != (AUTO,):
        return tuple(pin)
    return tuple(p.name for p in near_ports(min_rate_gbps, os.sched_getaffinity(0), sysfs))


def _numa_node(device: Path) -> int | None:
    with suppress(OSError, ValueError):
        node = int(_text(device / "device/numa_node"))
        return node if node >= 0 else None
    return None


def _cpus_by_node(sysfs: Path) -> dict[int, set[int]]:
    nodes = {}
    for node in sysfs.glob("devices/system/node/node[0-9]*"):
        with suppress(OSError, ValueError):
            nodes[int(node.name.removeprefix("node"))] = _cpu_list(_text(node / "cpulist"))
    return nodes


def _cpu_list(text: str) -> set[int]:
    """Parse the kernel's form: "0-3,8"."""
    cpus: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def _text(path: Path) -> str:
    return path.read_text().strip()
