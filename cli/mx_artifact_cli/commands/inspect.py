"""`mx-artifact inspect`: shows what is in a bundle, or what a source serves."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mx_artifact_cli import options
from mx_artifact_cli.connect import open_client
from mx_artifact_cli.options import Verb, parsed_option
from mx_artifact_cli.output import Output
from mx_artifact_cli.text import count_of, format_bytes
from mx_artifacts.errors import BundleError, ConfigurationError
from mx_artifacts.parsing import parse_address, parse_artifact_id, parse_text

if TYPE_CHECKING:
    from mx_artifacts.bundle.scan import BundleMember


@click.command("inspect", cls=Verb)
@click.argument(
    "bundle", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@parsed_option("--source-id", parse_text, "Source id; show what this source serves.")
@parsed_option("--worker-id", parse_text, "Worker of the source.  [default: the first]")
@parsed_option(
    "--artifact-id", parse_artifact_id, "Artifact id.  [default: the announced artifact]"
)
@parsed_option(
    "--source", parse_address, "Address of the source.  [default: the announced address]"
)
@options.server_option
@click.pass_obj
def command(
    output: Output,
    bundle: Path | None,
    source_id: str | None,
    worker_id: str | None,
    artifact_id: str | None,
    source: str | None,
    server: str,
) -> None:
    """Show the members of a BUNDLE file, or the manifest that a source serves.

    A bundle is checked as before an install; a damaged or hostile bundle is refused.
    """
    if (bundle is None) == (source_id is None):
        raise ConfigurationError(
            "inspect needs either a BUNDLE file or --source-id",
            hint="`mx-artifact sources list` shows the source ids",
        )
    if bundle is not None:
        if not bundle.is_file():  # reading it could wait for a writer, or never end
            raise ConfigurationError(
                f"{bundle} is not a regular file", hint="name the file of a bundle"
            )
        _inspect_bundle(output, bundle)
    elif source_id is not None:
        if source is None:
            from mx_artifacts.workflows.sources import announced_artifact

            with open_client(server) as client:
                source, artifact_id = announced_artifact(client, source_id, worker_id, artifact_id)
        _inspect_source(output, source, source_id, artifact_id or "")


def _inspect_bundle(output: Output, path: Path) -> None:
    from mx_artifacts.bundle.scan import scan_bundle
    from mx_artifacts.filesystem.regular_file import mapped_regular_file

    try:
        content = mapped_regular_file(path.resolve())
        members = scan_bundle(content)
        described = [_member_object(content, member) for member in members]
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}") from error
    for member in described:
        output.record("member", member)
    output.table(
        ("path", "size", "mode", "sha256"),
        [
            (
                m["path"] if m["sha256"] else f"{m['path']}/",
                m["size"] if m["sha256"] else "",
                m["mode"],
                m["sha256"] or "",
            )
            for m in described
        ],
    )
    files = [member for member in members if not member.is_dir]
    content_bytes = sum(member.size for member in files)
    bundle_bytes = path.stat().st_size
    output.line(
        f"{count_of(len(files), 'file')}, {format_bytes(content_bytes)} in a bundle of "
        f"{format_bytes(bundle_bytes)}"
    )
    output.result(
        {
            "bundle": path,
            "bundle_bytes": bundle_bytes,
            "content_bytes": content_bytes,
            "files": len(files),
            "members": described,
        }
    )


def _member_object(content: memoryview, member: BundleMember) -> dict[str, Any]:
    data = content[member.offset : member.offset + member.size]
    return {
        "path": member.path,
        "type": "directory" if member.is_dir else "file",
        "size": member.size,
        "mode": f"{member.mode:04o}",
        "mtime_ns": member.mtime_ns,
        "sha256": None if member.is_dir else hashlib.sha256(data).hexdigest(),
    }


def _inspect_source(output: Output, endpoint: str, source_id: str, artifact_id: str) -> None:
    from mx_artifacts.kinds.registry import name_of_type
    from mx_artifacts.workflows.sources import served_artifact

    served = served_artifact(endpoint, source_id, artifact_id)
    manifest = served.manifest
    output.facts(
        {
            "artifact": f"{served.artifact_id} (the hash of the tables)",
            "source": f"{source_id} at {endpoint}",
            "kind": name_of_type(manifest.mx_source_type),
            "size": format_bytes(manifest.total_size),
            "chunks": f"{served.chunk_count} of up to {format_bytes(manifest.chunk_size)}",
        }
    )
    output.table(
        ("bundle", "size", "crc32c"), [(f.path, f.size, f.checksum) for f in manifest.files]
    )
    output.result(
        {
            "endpoint": endpoint,
            "mx_source_id": source_id,
            "artifact_id": served.artifact_id,
            "kind": name_of_type(manifest.mx_source_type),
            "manifest_version": manifest.manifest_version,
            "mx_source_type": manifest.mx_source_type.name.lower(),
            "chunk_size": manifest.chunk_size,
            "chunk_count": served.chunk_count,
            "total_bytes": manifest.total_size,
            "files": [asdict(file) for file in manifest.files],
        }
    )
