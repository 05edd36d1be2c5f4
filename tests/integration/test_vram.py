"""Reads of a GPU's memory by NIXL between two processes; skipped where there is no GPU."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from mx_artifacts.memory.buffers import Buffer
from mx_artifacts.transport.base import DeviceMemory, MemoryKind, RemoteRange, Transport
from mx_artifacts.transport.registry import create_transport
from tests.support.child import Child

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device on this machine"
)

COUNT = 1 << 22
WAIT_SECONDS = 60.0
SOURCE = f"""
import sys, uuid
import torch
from mx_artifacts.transport.base import DeviceMemory
from mx_artifacts.transport.registry import create_transport
tensor = torch.arange({COUNT}, dtype=torch.int32, device="cuda")
torch.cuda.synchronize()
transport = create_transport("nixl", f"vram-source-{{uuid.uuid4().hex}}")
region = transport.register(DeviceMemory(tensor.data_ptr(), tensor.nbytes, tensor.device.index))
print(transport.descriptor().hex(), region.addr, region.device_id, flush=True)
sys.stdin.read()
"""


@contextmanager
def source() -> Iterator[tuple[bytes, RemoteRange]]:
    with Child([sys.executable, "-c", SOURCE]) as child:
        line = child.line()
        assert line is not None, child.errors
        descriptor, addr, device = line.split()
        wanted = RemoteRange(int(addr), 4 * COUNT, int(device), MemoryKind.VRAM)
        yield bytes.fromhex(descriptor), wanted


@pytest.fixture
def agent() -> Iterator[Transport]:
    with closing(create_transport("nixl", f"vram-target-{uuid.uuid4().hex}")) as transport:
        yield transport


def test_a_gpu_is_read_into_a_gpu(agent: Transport) -> None:
    mine = torch.zeros(COUNT, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    region = agent.register(DeviceMemory(mine.data_ptr(), mine.nbytes, mine.device.index))
    with source() as (descriptor, wanted), closing(agent.connect(descriptor)) as peer:
        agent.post_read(peer, [wanted], [(region, 0)]).wait(WAIT_SECONDS)
    assert torch.equal(mine.cpu(), torch.arange(COUNT, dtype=torch.int32))
    region.close()


def test_a_gpu_is_read_into_the_hosts_memory(agent: Transport) -> None:
    buffer = Buffer(4 * COUNT)
    region = agent.register(buffer.view)
    with source() as (descriptor, wanted), closing(agent.connect(descriptor)) as peer:
        agent.post_read(peer, [wanted], [(region, 0)]).wait(WAIT_SECONDS)
    read = torch.frombuffer(buffer.view, dtype=torch.int32)
    assert torch.equal(read, torch.arange(COUNT, dtype=torch.int32))
    del read
    region.close()
    buffer.close()
