"""`mx-artifact sources`: shows the sources that the central server knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mx_artifact_cli import options
from mx_artifact_cli.connect import open_client
from mx_artifact_cli.describe import identity_facts, identity_object, shortened
from mx_artifact_cli.options import VerbGroup, parsed_argument, parsed_option
from mx_artifact_cli.output import Output
from mx_artifact_cli.text import count_of, format_bytes, format_seconds
from mx_artifacts.artifacts.transport_labels import transports_of
from mx_artifacts.core.sources import SourceQuery, SourceStatus, StoredWorker
from mx_artifacts.kinds.registry import get_kind, kind_name_of
from mx_artifacts.parsing import parse_integer, parse_model_name, parse_text
from mx_artifacts.runtime.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    pass


@click.group("sources", cls=VerbGroup)
def command() -> None:
    """Show the sources that the central server knows."""


@command.command("list")
@click.option(
    "--kind",
    "kind_name",
    cls=options.KindOption,
    metavar="KIND",
    help="List only sources of this cache kind.",
)
@parsed_option("--model", parse_model_name, "List only sources of this model.", metavar="NAME")
@click.option(
    "--status",
    type=click.Choice([s.name.lower() for s in SourceStatus]),
    help="List only sources with this status; ready also requires a recent heartbeat.",
)
@options.worker_rank_option("List only sources with this worker rank.")
@parsed_option("--limit", parse_integer(1, 100_000), "Maximum number of sources.", default="1000")
@options.server_option
@click.pass_obj
def list_command(
    output: Output,
    kind_name: str | None,
    model: str | None,
    status: str | None,
    worker_rank: int | None,
    limit: int,
    server: str,
) -> None:
    """List sources, one per line."""
    from mx_artifacts.workflows.sources import listed_workers

    kind = get_kind(kind_name) if kind_name else None
    query = SourceQuery(
        model_name=model,
        status=SourceStatus[status.upper()] if status else None,
        worker_rank=worker_rank,
        limit=limit,
    )
    workers: list[StoredWorker] = []
    with open_client(server) as client:
        for stored in listed_workers(client, query, kind):
            workers.append(stored)
            output.record("source", source_object(stored))
    if workers:
        output.table(
            (
                "source",
                "worker",
                "rank",
                "kind",
                "model",
                "status",
                "seen",
                "size",
                "read by",
                "endpoint",
            ),
            map(_row, workers),
        )
    output.note(f"{count_of(len(workers), 'source')} at {server}")
    output.result({"server": server, "sources": [source_object(stored) for stored in workers]})


def _row(stored: StoredWorker) -> tuple[object, ...]:
    record = stored.record
    return (
        stored.mx_source_id,
        stored.worker_id,
        record.worker_rank,
        kind_name_of(stored.identity),
        shortened(stored.identity.model_name),
        record.status.name.lower(),
        _seen(stored),
        format_bytes(record.artifact.total_size) if record.artifact else "",
        ",".join(transports_of(record.topology)),
        record.worker_grpc_endpoint,
    )


@command.command("show")
@parsed_argument("source_id", parse_text)
@parsed_argument("worker_id", parse_text, required=False)
@options.server_option
@click.pass_obj
def show_command(output: Output, source_id: str, worker_id: str | None, server: str) -> None:
    """Show the identity and the workers of SOURCE_ID, or only the worker WORKER_ID."""
    from mx_artifacts.workflows.sources import workers_of_source

    with open_client(server) as client:
        workers = workers_of_source(client, source_id, worker_id)
    output.line(f"source {source_id}")
    output.facts(identity_facts(workers[0].identity), indent="  ")
    for stored in workers:
        record, artifact = stored.record, stored.record.artifact
        facts: dict[str, object] = {
            "status": f"{record.status.name.lower()}, seen {_seen(stored)}",
            "rank": record.worker_rank,
            "endpoint": record.worker_grpc_endpoint,
            "transports": list(transports_of(record.topology)),
            "read by": ", ".join(transports_of(record.topology)),
            "accelerator": record.accelerator or "unknown",
        }
        if artifact:
            facts["artifact"] = artifact.artifact_id
            facts["size"] = (
                f"{format_bytes(artifact.total_size)}, "
                f"{count_of(artifact.file_count, 'bundle')}, "
                f"{count_of(artifact.chunk_count, 'chunk')}"
            )
            facts["node rank"] = artifact.node_rank
        output.line(f"worker {stored.worker_id}")
        output.facts(facts, indent="  ")
        output.record("worker", source_object(stored))
    output.result({"server": server, "workers": [source_object(stored) for stored in workers]})


def source_object(stored: StoredWorker) -> dict[str, Any]:
    """Describe a record for the JSON formats."""
    record, artifact = stored.record, stored.record.artifact
    described: dict[str, Any] = {
        "mx_source_id": stored.mx_source_id,
        "worker_id": stored.worker_id,
        "kind": kind_name_of(stored.identity),
        "identity": identity_object(stored.identity),
        "worker_rank": record.worker_rank,
        "status": record.status.name.lower(),
        "updated_at_ms": record.updated_at_ms,
        "endpoint": record.worker_grpc_endpoint,
        "accelerator": record.accelerator,
        "topology": dict(sorted(record.topology.items())),
        "source_load": record.source_load,
    }
    if artifact is not None:
        described["artifact"] = {
            "artifact_id": artifact.artifact_id,
            "total_bytes": artifact.total_size,
            "file_count": artifact.file_count,
            "chunk_count": artifact.chunk_count,
            "node_rank": artifact.node_rank,
        }
    return described


def _seen(stored: StoredWorker) -> str:
    age = SYSTEM_CLOCK.now() - stored.record.updated_at_ms / 1000
    return f"{format_seconds(max(0.0, age))} ago"
