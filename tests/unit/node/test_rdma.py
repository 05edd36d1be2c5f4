"""RDMA devices as the kernel shows them, and which of them MX_RDMA_NIC_PIN means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mx_artifacts.node.rdma import RdmaPort, active_ports, near_ports, pinned_devices
from mx_artifacts.parsing import parse_gbps, parse_rdma_devices


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def add_port(sysfs: Path, device: str, port: int, rate: str, state: str, node: int) -> None:
    place = sysfs / "class/infiniband" / device
    write(place / f"ports/{port}/rate", rate)
    write(place / f"ports/{port}/state", state)
    write(place / "device/numa_node", str(node))


@pytest.fixture(name="sysfs")
def _sysfs(tmp_path: Path) -> Path:
    """A node of two sockets with a fast device at each, a slow one, and one that is down."""
    add_port(tmp_path, "mlx5_0", 1, "400 Gb/sec (4X NDR)", "4: ACTIVE", 0)
    add_port(tmp_path, "mlx5_1", 1, "400 Gb/sec (4X NDR)", "4: ACTIVE", 1)
    add_port(tmp_path, "mlx5_2", 1, "25 Gb/sec (1X EDR)", "4: ACTIVE", 0)
    add_port(tmp_path, "mlx5_3", 1, "400 Gb/sec (4X NDR)", "1: DOWN", 0)
    add_port(tmp_path, "mlx5_4", 1, "nonsense", "4: ACTIVE", 0)
    add_port(tmp_path, "mlx5_5", 2, "100 Gb/sec (4X EDR)", "4: ACTIVE", -1)
    write(tmp_path / "devices/system/node/node0/cpulist", "0-1,4")
    write(tmp_path / "devices/system/node/node1/cpulist", "2-3")
    return tmp_path


def test_ports_that_are_up_and_can_be_read(sysfs: Path) -> None:
    assert active_ports(sysfs) == [
        RdmaPort("mlx5_0:1", 400.0, 0),
        RdmaPort("mlx5_1:1", 400.0, 1),
        RdmaPort("mlx5_2:1", 25.0, 0),
        RdmaPort("mlx5_5:2", 100.0, None),
    ]


@pytest.mark.parametrize(
    ("min_rate", "cpus", "names"),
    [
        (0.0, {4}, ["mlx5_0:1", "mlx5_2:1"]),
        (100.0, {0}, ["mlx5_0:1"]),
        (100.0, {2}, ["mlx5_1:1"]),
        (100.0, {0, 2}, ["mlx5_0:1", "mlx5_1:1"]),
        (100.0, {99}, ["mlx5_0:1", "mlx5_1:1", "mlx5_5:2"]),
        (800.0, {0}, []),
    ],
)
def test_fast_ports_near_these_cpus(
    sysfs: Path, min_rate: float, cpus: set[int], names: list[str]
) -> None:
    assert [port.name for port in near_ports(min_rate, cpus, sysfs)] == names


def test_what_is_pinned(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2})
    assert pinned_devices((), 0.0, sysfs) == ()
    assert pinned_devices(("mlx5_9",), 800.0, sysfs) == ("mlx5_9",)
    assert pinned_devices(("auto",), 100.0, sysfs) == ("mlx5_1:1",)
    assert pinned_devices(("auto",), 0.0, sysfs / "nothing") == ()


def test_settings() -> None:
    assert parse_rdma_devices(" mlx5_0:1, mlx5_1") == ("mlx5_0:1", "mlx5_1")
    assert parse_rdma_devices("auto") == ("auto",)
    assert parse_gbps(" 200 ") == 200.0
    for text in ("", "a,a", "a,,b", "mlx5_0:x", "a b", "../x"):
        with pytest.raises(ValueError, match="devices"):
            parse_rdma_devices(text)
    for text in ("", "-1", "fast", "1e9", "nan"):
        with pytest.raises(ValueError, match="Gbit/s"):
            parse_gbps(text)
