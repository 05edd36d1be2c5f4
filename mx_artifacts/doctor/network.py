"""Checks of the data plane, the central server and its backend."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

from mx_artifacts.client.central import CentralClient
from mx_artifacts.doctor.base import Check, fail, ok, warn
from mx_artifacts.errors import ConfigurationError, ExitCode, MxArtifactsError
from mx_artifacts.metadata.base import MetadataBackend
from mx_artifacts.metadata.registry import create_backend
from mx_artifacts.node.environment import Environment
from mx_artifacts.settings import NIXL, TRANSPORTS
from mx_artifacts.transport.registry import third_party_transport

# In a process of its own: a hang in UCX ends with it, and its log is ours to read. It leaves
# without NIXL's destructors, which may hang too.
_START_AGENT = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[1])
from mx_artifacts.errors import MxArtifactsError
from mx_artifacts.transport.nixl import start_agent
try:
    start_agent("mx-artifact-doctor", sys.argv[2], float(sys.argv[3]))
    answer = {}
except MxArtifactsError as error:
    answer = {"error": str(error), "hint": error.hint()}
print(json.dumps(answer), flush=True)
os._exit(0)
"""
# Of UCX's log at level debug (ucp_worker.c): "created interface[1]=0x… using tcp/eth0 on worker …".
_INTERFACE = re.compile(r"created interface\[\d+\]=\S+ using (\S+) on worker")
_RDMA = ("rc", "dc", "ud", "srd", "gga")
"""First letters of UCX's transports over RDMA devices."""
_GRACE_SECONDS = 15.0
"""For the interpreter and the imports around the start of the agent."""


def check_transport(policy: str, stream_port: int) -> Check:
    """Say what the data plane is, and what it lets others do."""
    name = "transport"
    if policy not in TRANSPORTS:
        try:
            third_party_transport(policy)
        except ConfigurationError as error:
            return fail(name, str(error), error.hint(), error.exit_code)
        return ok(name, f"{policy}, of an installed package (MX_TRANSPORT={policy})")
    port = f"port {stream_port} (+ device index)" if stream_port else "any free port"
    if policy != NIXL:
        what = (
            f"stream (MX_TRANSPORT={policy}); a source listens for it on {port}. Sources and "
            "targets of the reference need MX_TRANSPORT=nixl"
        )
        return ok(name, what)
    return warn(
        name,
        f"NIXL if the peer supports it, else the stream on {port}: everyone who can reach the "
        "ports that UCX opens can read and write the memory of a process that publishes, fetches "
        "or seeds",
        "keep this only if you trust everyone in the network (docs/operations/network.md)",
    )


def check_nixl(backend: str, env: Environment, *, timeout_seconds: float) -> Check:
    """Start a NIXL agent in a process of its own; say which UCX transports it found."""
    command = [sys.executable, "-c", _START_AGENT, json.dumps(sys.path), backend]
    try:
        done = subprocess.run(
            [*command, str(timeout_seconds)],
            env={**env, "UCX_LOG_LEVEL": "debug", "UCX_LOG_FILE": "stderr"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds + _GRACE_SECONDS,
        )
        answer = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        what = f"a NIXL agent did not start within {timeout_seconds + _GRACE_SECONDS:g} s"
        return _nixl_failed(what, "name the network device with UCX_NET_DEVICES")
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return _nixl_failed(f"a NIXL agent died as it started: {last}", "reinstall nixl")
    if "error" in answer:
        return _nixl_failed(answer["error"], answer["hint"])
    transports = sorted(set(_INTERFACE.findall(done.stderr)))
    what = f"an agent with backend {backend} starts"
    if not transports:
        return ok("nixl", what)
    what = f"{what}; UCX has {', '.join(transports)}"
    rdma = [name for name in transports if name.startswith(_RDMA)]
    if not rdma and Path("/dev/infiniband").exists():
        step = "raise memlock, and check UCX_TLS and UCX_NET_DEVICES"
        return warn("nixl", f"{what}, but it does not use the RDMA devices of this node", step)
    if not any(not name.endswith("/memory") for name in transports):
        step = "see UCX_TLS and UCX_NET_DEVICES"
        return fail("nixl", f"{what}, but it uses no network", step, ExitCode.TRANSPORT)
    return ok("nixl", what)


def _nixl_failed(what: str, next_step: str) -> Check:
    return fail("nixl", what, next_step, ExitCode.TRANSPORT)


def check_backend(url: str) -> Check:
    """Ask the metadata backend that the settings name for the central server, if it is one."""
    name = "metadata backend"
    try:
        asyncio.run(_ping(create_backend(url)))
    except MxArtifactsError as error:
        return fail(name, str(error), error.hint(), error.exit_code)
    return ok(name, "it answers")


async def _ping(backend: MetadataBackend) -> None:
    try:
        await backend.start()
    finally:
        await backend.close()


def check_server(address: str, *, timeout_seconds: float) -> Check:
    """Ask the central server whether it, and the backend behind it, is well."""
    name = "central server"
    client = CentralClient(address, timeout_seconds=timeout_seconds)
    try:
        health = client.health()
    except MxArtifactsError as error:
        return fail(name, str(error), error.hint(), error.exit_code)
    finally:
        client.close()
    if health.status != "ok":
        step = "see the server's log: the server runs, but the store of its records does not answer"
        return fail(name, f"{address} says: {health.status}", step, ExitCode.UNREACHABLE)
    return ok(name, f"{address} runs version {health.version}")
