"""Settings: values that operators set by flags or environment variables, with one default each.

A setting has one name, one default, one reader and one row in docs/operations/settings.md (which
`tools/generate_docs.py` writes from `SETTINGS`). A flag overrides the environment; the environment
overrides the default. An invalid value is refused; the error names the setting and the expected
form. Only for a `lenient` setting, on whose reference behaviour deployed operators rely, there is a
warning and the default is used.
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
    parse_gbps,
    parse_host,
    parse_integer,
    parse_labels,
    parse_names,
    parse_path,
    parse_rate,
    parse_rdma_devices,
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
    text = (str(default) if default_text is None else default_text) or "none"
    setting = Setting(name, function, parse, meaning, text, aliases, fallbacks, lenient)
    SETTINGS.append(setting)  # type: ignore[arg-type]
    return setting


def _bundle_root(env: Mapping[str, str]) -> Path:
    """Return a directory per user: the owner of a directory can replace what others stage in it."""
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
    "address of the central server for clients, host:port. MODEL_EXPRESS_URL is deprecated, but "
    "overrides the other variable",
    aliases=("MODEL_EXPRESS_URL",),
)
METADATA_BACKEND = _setting(
    "MX_METADATA_BACKEND",
    "memory:",
    parse_text,
    "store in which the central server keeps records: memory:, redis://host:port/db, or redis "
    "(its host and port are in MX_REDIS_HOST and MX_REDIS_PORT)",
)
REDIS_URL = _setting(
    "REDIS_URL",
    "",
    parse_utf8,
    "full Redis URL; overrides host and port",
    default_text="made from host and port",
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
    "MX_HEARTBEAT_INTERVAL_SECS", 30.0, parse_duration, "interval of a source's heartbeats [s]"
)
HEARTBEAT_TIMEOUT = _setting(
    "MX_HEARTBEAT_TIMEOUT_SECS",
    90.0,
    parse_duration,
    "time without a heartbeat after which a record is STALE [s]",
)
REAPER_SCAN_INTERVAL = _setting(
    "MX_REAPER_SCAN_INTERVAL_SECS", 30.0, parse_duration, "interval of the reaper's scans [s]"
)
GC_TIMEOUT = _setting(
    "MX_GC_TIMEOUT_SECS",
    3600.0,
    parse_duration,
    "time after its last heartbeat after which a STALE record is deleted [s]",
)
WORKER_HOST = _setting(
    "MX_WORKER_HOST",
    "",
    parse_host,
    "host that a source announces and to which targets connect: the address or name of this node, "
    "or of a Service or NAT in front of it",
    default_text="this node's address on the route to the central server",
)
WORKER_LISTEN = _setting(
    "MX_WORKER_LISTEN",
    "",
    parse_host,
    "address on which a source listens. 0.0.0.0: all addresses of this machine; then everyone who "
    "can reach one of them can connect, because there is no authentication",
    default_text="the announced host if it is an address of this machine, else this node's address "
    "on the route to the central server",
)
WORKER_GRPC_PORT = _setting(
    "MX_WORKER_GRPC_PORT",
    6555,
    _PORT,
    "base port of the worker service; the device index is added to it. 0: any free port. A port "
    "that you set must be free; if the default port is in use, another one is taken",
)
WORKER_STREAM_PORT = _setting(
    "MX_WORKER_STREAM_PORT",
    6655,
    _PORT,
    "base port of a source's stream transport, which listens on the address of the worker service; "
    "otherwise like MX_WORKER_GRPC_PORT",
)
NIXL_BACKENDS = ("UCX", "LIBFABRIC")
"""Backends that read another node's memory; NIXL has others for files and object stores."""
NIXL_BACKEND = _setting(
    "MX_NIXL_BACKEND",
    "UCX",
    parse_choice(*NIXL_BACKENDS),
    "NIXL backend: UCX or LIBFABRIC; source and target must use the same",
)
RDMA_NIC_PIN: Setting[tuple[str, ...]] = _setting(
    "MX_RDMA_NIC_PIN",
    (),
    parse_rdma_devices,
    "RDMA devices that NIXL uses: names separated by commas, or auto: those near the CPUs of this "
    "process. UCX_NET_DEVICES has precedence",
    default_text="UCX chooses",
)
RDMA_NIC_PIN_MIN_RATE_GBPS = _setting(
    "MX_RDMA_NIC_PIN_MIN_RATE_GBPS",
    0.0,
    parse_gbps,
    "with MX_RDMA_NIC_PIN=auto: minimum link rate of a device [Gbit/s]",
)
NIXL = "nixl"
TRANSPORTS = ("auto", NIXL, "stream")
TRANSPORT = _setting(
    "MX_TRANSPORT",
    "auto",
    parse_text,
    "transport of the bytes. auto and stream: a TCP stream, by which peers can read what they "
    "lease and nothing else. nixl: NIXL if the peer supports it, else the stream. Set nixl only if "
    "you trust everyone in the network: everyone who can reach NIXL's ports can read and write "
    "this process's memory. Sources and targets of the reference need nixl "
    "(docs/operations/network.md). Any other value is the name of an installed package's transport "
    "(docs/adr/0013)",
)
CHUNK_SIZE = _setting(
    "MX_ARTIFACT_TRANSFER_CHUNK_SIZE",
    DEFAULT_CHUNK_SIZE_BYTES,
    parse_chunk_size,
    "chunk size of the manifest [bytes], at most 4 GiB. An invalid value in the environment gives "
    "a warning, and the default is used",
    lenient=True,
    default_text="64 MiB",
)
BUNDLE_ROOT = _setting(
    "MX_ARTIFACT_BUNDLE_ROOT",
    _bundle_root,
    parse_path,
    "directory for bundles beyond the memory budget, and for the locks by which the processes of a "
    "node take turns",
    default_text="$TMPDIR/modelexpress-artifacts; with the suffix -UID for users other than root",
)
STATE_DIR = _setting(
    "MX_STATE_DIR",
    _default_state_directory,
    parse_path,
    "directory for what this node must remember (quarantined artifacts); use a volume that "
    "outlives the container",
    default_text="$XDG_STATE_HOME/mx-artifacts, else ~/.local/state/mx-artifacts",
)
SLOTS = _setting(
    "MX_ARTIFACT_SLOTS", 4, parse_integer(1, 1024), "registered chunk buffers of a source or target"
)
RESIDENT_BUDGET = _setting(
    "MX_ARTIFACT_RESIDENT_BUDGET",
    _resident_budget,
    parse_size,
    "registered memory for the bundles of a source [bytes]; further bundles are in files",
    default_text="a quarter of the free memory, at most 4 GiB",
)
MAX_RATE = _setting(
    "MX_ARTIFACT_MAX_RATE",
    None,
    parse_rate,
    "maximum rate at which a source sends, or a target receives, such as 500MiB [bytes per "
    "second]; 0: no limit",
    default_text="no limit",
)
COMPRESSION = _setting(
    "MX_ARTIFACT_COMPRESSION",
    AUTO,
    parse_choice(*MODES),
    "which bytes are sent compressed: auto (if the link is slower than the compressor), zstd (all) "
    "or none. The target decides; a source with none never compresses. Needs the extra zstd",
)
DURABLE = _setting(
    "MX_ARTIFACT_DURABLE",
    False,
    parse_switch,
    "1: an install waits until its files are on the disk. 0: the system writes them back later; "
    "after a restart of the machine, damaged entries are fetched again",
    default_text="0",
)
LEASE_TTL = _setting(
    "MX_ARTIFACT_LEASE_TTL_SECS", 30.0, parse_duration, "duration of a chunk lease [s]"
)
PUBLISH_TIMEOUT = _setting(
    "MX_PUBLISH_TIMEOUT_SECS",
    1800.0,
    parse_wait,
    "how long a publisher waits for a central server that it cannot reach yet [s]; 0: do not wait",
)
SOURCE_QUERY_TIMEOUT: Setting[float | None] = _setting(
    "MX_SOURCE_QUERY_TIMEOUT",
    None,
    parse_duration,
    "time after which a discovery asks the central server for no further record [s]; in any case, "
    "each call ends after 10 s",
    default_text="no limit, except that of each call",
)
TRANSFER_TIMEOUT = _setting(
    "MX_TRANSFER_TIMEOUT",
    300.0,
    parse_duration,
    "maximum duration of a transfer, from all sources of an artifact [s]",
)
SOURCE_SELECTOR = _setting(
    "MX_P2P_SOURCE_SELECTOR",
    "random",
    parse_text,
    "order of candidates: random, rendezvous_hash, load_aware (least busy first) or topology_aware "
    "(nearest first, then least busy). An unknown name gives a warning and random",
)
TOPOLOGY = _setting(
    "MX_P2P_TOPOLOGY",
    _host_label,
    _parse_topology,
    "location of this node, which sources announce and topology_aware compares: zone=a,rack=7, or "
    "a JSON object; host is added if it is not stated",
    default_text="host=the host's name",
)
TOPOLOGY_LEVELS = _setting(
    "MX_P2P_TOPOLOGY_LEVELS",
    DEFAULT_LEVELS,
    parse_names,
    "labels that topology_aware compares, the broadest first. The more of them a source shares "
    "with this node before the first difference, the nearer it is",
    default_text=",".join(DEFAULT_LEVELS),
)
READY_URL = _setting(
    "MX_ARTIFACT_READY_URL",
    "",
    parse_text,
    "engine's health URL; a publisher polls it and seals nothing until the engine is ready "
    "(http://127.0.0.1:8000/health for vLLM, port 30000 for SGLang)",
    default_text="not polled",
)
READY_TIMEOUT = _setting(
    "MX_ARTIFACT_READY_TIMEOUT_SECS",
    1800.0,
    parse_duration,
    "maximum time for the engine to become ready, and for its caches to settle [s]",
)
HEAD_ADDRESS = _setting(
    "MX_ARTIFACT_HEAD_ADDRESS",
    "",
    parse_text,
    "address of the head node; on other nodes it replaces a loopback host in the health URL",
    default_text="",
)
FOLLOW_INTERVAL = _setting(
    "MX_ARTIFACT_FOLLOW_INTERVAL_SECS",
    10.0,
    parse_duration,
    "interval in which --follow looks for changes [s]",
)
COMPILE_CONFIG_DIGEST = _setting(
    "MX_ARTIFACT_COMPILE_CONFIG_DIGEST",
    "",
    parse_utf8,
    "digest of the compile configuration, a field of the identity; torch compile caches with "
    "different digests do not pair",
    default_text="",
)
MODEL_REVISION = _setting(
    "MX_MODEL_REVISION",
    "",
    parse_utf8,
    "revision of the model, a field of the identity",
    default_text="",
)
POD_NAME = _setting(
    "POD_NAME",
    "",
    parse_utf8,
    "name of this process's pod, for owner references and for the member id in a group",
    default_text="",
)
POD_UID = _setting("POD_UID", "", parse_utf8, "uid of this process's pod", default_text="")
POD_NAMESPACE = _setting(
    "POD_NAMESPACE", "", parse_utf8, "namespace of this process's pod", default_text=""
)
