"""Checks whether this node is fit to publish and fetch kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mx_artifacts import settings
from mx_artifacts.configuration import SettingValues
from mx_artifacts.doctor import network, roots, tools
from mx_artifacts.doctor.base import Check
from mx_artifacts.metadata.registry import MEMORY_URL, backend_url
from mx_artifacts.node.environment import environment
from mx_artifacts.runtime.clock import SYSTEM_CLOCK
from mx_artifacts.workflows.selected_kind import SelectedKind


def check_node(
    selected: Sequence[SelectedKind],
    server: str,
    *,
    tools_required: bool,
    timeout_seconds: float,
) -> Iterator[Check]:
    """Yield each finding as soon as it is known; change nothing.

    `server` is the central server's address. `tools_required`: a tool that a kind cannot do without
    fails the check where it is missing, and is not only a warning. A NIXL agent and the server may
    take `timeout_seconds` each.
    """
    env = environment()
    for each in selected:
        for rule in each.kind.roots:
            stated = each.stated_roots.get(rule.name)
            yield from roots.check_root(each.kind, rule, stated, env, each.engine_in_use)
    yield from tools.check_tools([each.kind for each in selected], tools_required, env)
    yield tools.check_compiled_part()
    yield tools.check_user(env)
    yield tools.check_memlock(settings.SLOTS.read() * settings.CHUNK_SIZE.read())
    stated_roots = [path for each in selected for path in each.stated_roots.values()]
    yield roots.check_clock(SYSTEM_CLOCK.now(), [Path(tools.__file__), *stated_roots])
    transport = settings.TRANSPORT.read()
    yield network.check_transport(transport, settings.WORKER_STREAM_PORT.read())
    if transport == settings.NIXL:
        backend = settings.NIXL_BACKEND.read()
        yield network.check_nixl(backend, env, timeout_seconds=timeout_seconds)
    if (backend := backend_url(SettingValues())) != MEMORY_URL:
        yield network.check_backend(backend)
    yield network.check_server(server, timeout_seconds=timeout_seconds)
