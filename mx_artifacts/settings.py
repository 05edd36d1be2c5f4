"""Settings: what operators state by flags or environment variables, with one default each.

A setting has one name, one default, one reader and one row in docs/operations/settings.md (which
`tools/generate_docs.py` writes from `SETTINGS`). Precedence: flag, environment, default.
A value that makes no sense is refused with its name and what it should be, except where deployed
operators rely on the reference's rule "warn and take the default" (`lenient`).
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from mx_artifacts.compression import AUTO, MODES
from mx_artifacts.configuration import Setting
from mx_artifacts.core.chunks import DEFAULT_CHUNK_SIZE_BYTES, MIB
from mx_artifacts.core.topology import DEFAULT_LEVELS
from mx_artifacts.node.free_memory import free_memory_bytes
from mx_artifacts.parsing import (
    parse_address,
    parse_choice,
    parse_chunk_size,
    parse_duration,
    parse_host,
    parse_integer,
    parse_labels,
    parse_names,
    parse_path,
    parse_rate,
    parse_size,
    parse_switch,
    parse_text,
    parse_utf8,
    parse_wait,
)

T = TypeVar("T")

SETTINGS: list[Setting[object]] = []


def _setting(
    name: str,
    default: T | Callable[[Mapping[str, str]], T],
    parse: Callable[[str], T],
    meaning: str,
    *,
    aliases: tuple[str, ...] = (),
    fallbacks: tuple[str, ...] = (),
    lenient: bool = False,
    default_text: str | None = None,
) -> Setting[T]:
    function: Callable[[Mapping[str, str]], T]
    function = default if callable(default) else lambda _env: default
    text = str(default) if default_text is None else default_text
    setting = Setting(name, function, parse, meaning, text, aliases, fallbacks, lenient)
    SETTINGS.append(setting)  # type: ignore[arg-type]
    return setting


def _bundle_root(env: Mapping[str, str]) -> Path:
    """Give each user one, since whoever owns a directory can replace what others stage in it."""
    suffix = f"-{os.geteuid()}" if os.geteuid() else ""
    return Path(tempfile.gettempdir()) / f"modelexpress-artifacts{suffix}"


def _resident_budget(env: Mapping[str, str]) -> int:
    free_bytes = free_memory_bytes()
    return 1024 * MIB if free_bytes is None else min(free_bytes // 4, 4096 * MIB)


def _host_label(env: Mapping[str, str]) -> Mapping[str, str]:
    return {"host": socket.gethostname()}


def _parse_topology(text: str) -> Mapping[str, str]:
    return {**_host_label({}), **parse_labels(text)}


_PORT = parse_integer(0, 65535)


def _default_state_directory(env: Mapping[str, str]) -> Path:
    base, home = env.get("XDG_STATE_HOME", ""), env.get("HOME", "")
    if base.startswith("/"):
        return Path(base, "mx-artifacts")
    if home.startswith("/"):
        return Path(home, ".local", "state", "mx-artifacts")
    return Path(tempfile.gettempdir(), f"mx-artifacts-state-{os.getuid()}")


SERVER_ADDRESS = _setting(
    "MX_SERVER_ADDRESS",
    "localhost:8001",
    parse_address,
    "central server for clients, host:port; MODEL_EXPRESS_URL is deprecated but wins",
    aliases=("MODEL_EXPRESS_URL",),
)
METADATA_BACKEND = _setting(
    "MX_METADATA_BACKEND",
    "memory:",
    parse_text,
    "where the central server keeps records: memory:, "
    "redis://host:port/db, or redis (from the variables below)",
)
REDIS_URL = _setting(
    "REDIS_URL",
    "",
    parse_utf8,
    "full Redis URL; overrides host and port",
    default_text="from host and port",
)
REDIS_HOST = _setting(
    "MX_REDIS_HOST",
    "localhost",
    parse_text,
    "Redis host",
    fallbacks=("REDIS_HOST",),
)
REDIS_PORT = _setting(
    "MX_REDIS_PORT",
    6379,
    parse_integer(1, 65535),
    "Redis port",
    fallbacks=("REDIS_PORT",),
)
HEARTBEAT_INTERVAL = _setting(
    "MX_HEARTBEAT_INTERVAL_SECS", 30.0, parse_duration, "a source's heartbeat [s]"
)
HEARTBEAT_TIMEOUT = _setting(
    "MX_HEARTBEAT_TIMEOUT_SECS",
    90.0,
    parse_duration,
    "a record without heartbeat for this long is stale [s]",
)
REAPER_SCAN_INTERVAL = _setting(
    "MX_REAPER_SCAN_INTERVAL_SECS", 30.0, parse_duration, "how often the reaper looks [s]"
)
GC_TIMEOUT = _setting(
    "MX_GC_TIMEOUT_SECS", 3600.0, parse_duration, "a stale record is deleted after this long [s]"
)
WORKER_HOST = _setting(
    "MX_WORKER_HOST",
    "",
    parse_host,
    "host that a source announces, for targets to connect to: this node's address or name, or that "
    "of a Service or NAT in front of it",
    default_text="this node's address towards the central server",
)
WORKER_LISTEN = _setting(
    "MX_WORKER_LISTEN",
    "",
    parse_host,
    "address that a source listens on; 0.0.0.0: all of this machine, to which anyone who reaches "
    "one can connect, without authentication",
    default_text="the announced host where that is this machine's, else its address towards the "
    "central server",
)
WORKER_GRPC_PORT = _setting(
    "MX_WORKER_GRPC_PORT",
    6555,
    _PORT,
    "base port of the worker service, to which the device index is added; 0: any free one. A port "
    "that is stated must be free; instead of the default, another one is taken",
)
WORKER_STREAM_PORT = _setting(
    "MX_WORKER_STREAM_PORT",
    6655,
    _PORT,
    "base port of a source's stream transport, on the address of the worker service; otherwise as "
    "MX_WORKER_GRPC_PORT",
)
NIXL_BACKENDS = ("UCX", "LIBFABRIC")
"""Those that read another node's memory; NIXL has others for files and object stores."""
NIXL_BACKEND = _setting(
    "MX_NIXL_BACKEND",
    "UCX",
    parse_choice(*NIXL_BACKENDS),
    "NIXL backend: UCX or LIBFABRIC; both ends must agree",
)
NIXL = "nixl"
TRANSPORTS = ("auto", NIXL, "stream")
TRANSPORT = _setting(
    "MX_TRANSPORT",
    "auto",
    parse_text,
    "data plane: auto and stream: a TCP stream, by which peers read what they lease and nothing "
    "else; nixl: NIXL where the peer has it, else the stream. Say nixl only where everybody in the "
    "network may be trusted: who reaches NIXL's ports reads and writes this process's memory. The "
    "reference's sources and targets need nixl (docs/operations/network.md). Another name is that "
    "of an installed package's transport (docs/adr/0013)",
)
CHUNK_SIZE = _setting(
    "MX_ARTIFACT_TRANSFER_CHUNK_SIZE",
    DEFAULT_CHUNK_SIZE_BYTES,
    parse_chunk_size,
    "manifest chunk size [bytes], at most 4 GiB; invalid in the environment: a warning and the "
    "default",
    lenient=True,
    default_text="64 MiB",
)
BUNDLE_ROOT = _setting(
    "MX_ARTIFACT_BUNDLE_ROOT",
    _bundle_root,
    parse_path,
    "where bundles lie that exceed the memory, and processes of one node take turns",
    default_text="$TMPDIR/modelexpress-artifacts; with -UID for users other than root",
)
STATE_DIR = _setting(
    "MX_STATE_DIR",
    _default_state_directory,
    parse_path,
    "what this node must remember (quarantined artifacts); on a volume that outlives the container",
    default_text="$XDG_STATE_HOME/mx-artifacts, else ~/.local/state/mx-artifacts",
)
SLOTS = _setting(
    "MX_ARTIFACT_SLOTS", 4, parse_integer(1, 1024), "registered chunk buffers of a source or target"
)
RESIDENT_BUDGET = _setting(
    "MX_ARTIFACT_RESIDENT_BUDGET",
    _resident_budget,
    parse_size,
    "registered memory for the bundles of a source; what exceeds it lies in files [bytes]",
    default_text="a quarter of the free memory, at most 4 GiB",
)
MAX_RATE = _setting(
    "MX_ARTIFACT_MAX_RATE",
    None,
    parse_rate,
    "bytes a second that a source gives away, or a target takes, at most: 500MiB, say; 0: any "
    "number",
    default_text="any number",
)
COMPRESSION = _setting(
    "MX_ARTIFACT_COMPRESSION",
    AUTO,
    parse_choice(*MODES),
    "what goes over the wire compressed: auto (where the link is slower than the compressor), zstd "
    "(all) or none; a source compresses for whoever asks, unless it is none. Needs the extra zstd",
)
DURABLE = _setting(
    "MX_ARTIFACT_DURABLE",
    False,
    parse_switch,
    "1: an install waits until its files are on the disk; 0: the system writes them back later, "
    "and what is not whole after a restart of the machine is fetched again",
    default_text="0",
)
LEASE_TTL = _setting(
    "MX_ARTIFACT_LEASE_TTL_SECS", 30.0, parse_duration, "how long a chunk lease lasts [s]"
)
PUBLISH_TIMEOUT = _setting(
    "MX_PUBLISH_TIMEOUT_SECS",
    1800.0,
    parse_wait,
    "how long a publisher waits for a central server that cannot be reached yet [s]; 0: not at all",
)
SOURCE_QUERY_TIMEOUT: Setting[float | None] = _setting(
    "MX_SOURCE_QUERY_TIMEOUT",
    None,
    parse_duration,
    "after how long a discovery asks the central server for no further record [s]; every call to "
    "it ends after 10 s, whatever this says",
    default_text="no bound beside that of each call",
)
TRANSFER_TIMEOUT = _setting(
    "MX_TRANSFER_TIMEOUT",
    300.0,
    parse_duration,
    "budget of a transfer, from all sources of an artifact [s]",
)
SOURCE_SELECTOR = _setting(
    "MX_P2P_SOURCE_SELECTOR",
    "random",
    parse_text,
    "order of candidates: random, rendezvous_hash, load_aware (least busy first) or topology_aware "
    "(nearest first, then least busy); unknown: warning and random",
)
TOPOLOGY = _setting(
    "MX_P2P_TOPOLOGY",
    _host_label,
    _parse_topology,
    "where this node is, as sources tell it and topology_aware compares it: zone=a,rack=7, or a "
    "JSON object; host is added where it is not stated",
    default_text="host=the host's name",
)
TOPOLOGY_LEVELS = _setting(
    "MX_P2P_TOPOLOGY_LEVELS",
    DEFAULT_LEVELS,
    parse_names,
    "labels that topology_aware compares, the broadest first; the first in which a source differs "
    "says how near it is",
    default_text=",".join(DEFAULT_LEVELS),
)
READY_URL = _setting(
    "MX_ARTIFACT_READY_URL",
    "",
    parse_text,
    "engine's health URL, polled before anything is sealed "
    "(http://127.0.0.1:8000/health for vLLM, port 30000 for SGLang)",
    default_text="not polled",
)
READY_TIMEOUT = _setting(
    "MX_ARTIFACT_READY_TIMEOUT_SECS",
    1800.0,
    parse_duration,
    "how long the engine may take to become ready, and its caches to settle [s]",
)
HEAD_ADDRESS = _setting(
    "MX_ARTIFACT_HEAD_ADDRESS",
    "",
    parse_text,
    "head node's address, which replaces a loopback host in the health URL on other nodes",
    default_text="",
)
FOLLOW_INTERVAL = _setting(
    "MX_ARTIFACT_FOLLOW_INTERVAL_SECS",
    10.0,
    parse_duration,
    "how often --follow looks for what is new [s]",
)
COMPILE_CONFIG_DIGEST = _setting(
    "MX_ARTIFACT_COMPILE_CONFIG_DIGEST",
    "",
    parse_utf8,
    "partitions the torch compile pool",
    default_text="",
)
MODEL_REVISION = _setting(
    "MX_MODEL_REVISION", "", parse_utf8, "SourceIdentity.revision", default_text=""
)
POD_NAME = _setting(
    "POD_NAME",
    "",
    parse_utf8,
    "pod of this process: for owner references, and as a member of a group",
    default_text="",
)
POD_UID = _setting("POD_UID", "", parse_utf8, "its uid", default_text="")
POD_NAMESPACE = _setting("POD_NAMESPACE", "", parse_utf8, "its namespace", default_text="")
