"""Every setting of the table does the same in the library and on the command line.

What loaders get from `from_environment()` and the like is compared with what the verbs hand to the
library, for each setting by its variable, and by its flag where a verb has one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mx_artifact_cli import main as entry
from mx_artifact_cli.commands import fetch_and_install, publish, serve
from mx_artifact_cli.options import SettingOption
from mx_artifacts import fetcher, publisher, settings
from mx_artifacts.artifacts.source import readiness
from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
from mx_artifacts.artifacts.source.readiness import ReadinessSettings
from mx_artifacts.artifacts.target.fetch_values import FetcherSettings
from mx_artifacts.client.central import CentralClient
from mx_artifacts.configuration import Setting
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.identity.identify import probe_identity
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.node import rdma
from mx_artifacts.server import app
from mx_artifacts.server.app import ServerConfig
from mx_artifacts.transport import nixl_transport, registry
from mx_artifacts.transport.base import Transport
from mx_artifacts.workflows import follow_roots
from mx_artifacts.workflows.follow_settings import FollowSettings
from tests.support.made_up_node import made_up_node

KIND = "inductor"
"""Its identity has what settings say of the engine."""

ALWAYS = {
    # Without these, others have no effect.
    "MX_TRANSPORT": "nixl",
    "MX_RDMA_NIC_PIN": "auto",
    "MX_METADATA_BACKEND": "redis",
    "MX_ARTIFACT_READY_URL": "http://127.0.0.1:1/health",
    # Its default follows the free memory, which changes from one reading to the next.
    "MX_ARTIFACT_RESIDENT_BUDGET": "1GiB",
}
VALUES = {
    "MX_SERVER_ADDRESS": "127.0.0.1:7",
    "MX_METADATA_BACKEND": "memory:",
    "REDIS_URL": "redis://r:1/2",
    "MX_REDIS_HOST": "r",
    "MX_REDIS_PORT": "1",
    "MX_HEARTBEAT_INTERVAL_SECS": "7",
    "MX_HEARTBEAT_TIMEOUT_SECS": "7",
    "MX_REAPER_SCAN_INTERVAL_SECS": "7",
    "MX_GC_TIMEOUT_SECS": "7",
    "MX_WORKER_HOST": "127.0.0.2",
    "MX_WORKER_LISTEN": "127.0.0.3",
    "MX_WORKER_GRPC_PORT": "7",
    "MX_WORKER_STREAM_PORT": "8",
    "MX_NIXL_BACKEND": "LIBFABRIC",
    "MX_RDMA_NIC_PIN": "mlx5_7:1",
    "MX_RDMA_NIC_PIN_MIN_RATE_GBPS": "200",
    "MX_TRANSPORT": "stream",
    "MX_ARTIFACT_TRANSFER_CHUNK_SIZE": "1MiB",
    "MX_ARTIFACT_BUNDLE_ROOT": "/bundles",
    "MX_STATE_DIR": "/state",
    "MX_ARTIFACT_SLOTS": "7",
    "MX_ARTIFACT_RESIDENT_BUDGET": "2GiB",
    "MX_ARTIFACT_MAX_RATE": "1MiB",
    "MX_ARTIFACT_COMPRESSION": "none",
    "MX_ARTIFACT_DURABLE": "1",
    "MX_ARTIFACT_LEASE_TTL_SECS": "7",
    "MX_PUBLISH_TIMEOUT_SECS": "7",
    "MX_SOURCE_QUERY_TIMEOUT": "7",
    "MX_TRANSFER_TIMEOUT": "7",
    "MX_P2P_SOURCE_SELECTOR": "rendezvous_hash",
    "MX_P2P_TOPOLOGY": "zone=a",
    "MX_P2P_TOPOLOGY_LEVELS": "zone",
    "MX_ARTIFACT_READY_URL": "http://127.0.0.1:2/health",
    "MX_ARTIFACT_READY_TIMEOUT_SECS": "7",
    "MX_ARTIFACT_HEAD_ADDRESS": "head",
    "MX_ARTIFACT_FOLLOW_INTERVAL_SECS": "7",
    "MX_ARTIFACT_COMPILE_CONFIG_DIGEST": "d",
    "MX_MODEL_REVISION": "r",
    "POD_NAME": "pod",
    "POD_UID": "uid",
    "POD_NAMESPACE": "ns",
}
"""By setting: what is neither its default nor what `ALWAYS` has."""

VERBS = (publish.command, fetch_and_install.command, serve.command)
FLAGS = [
    pytest.param(option, id=f"{verb.name}{option.opts[0]}")
    for verb in VERBS
    for option in verb.params
    if isinstance(option, SettingOption)
]


@pytest.fixture(name="seen")
def _seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Return what the verbs hand to the library, once they have; nothing else is done."""
    seen: dict[str, Any] = {}
    for name in [name for setting in settings.SETTINGS for name in setting.names]:
        monkeypatch.delenv(name, raising=False)
    for name, value in {**ALWAYS, "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)

    class Publisher:
        def __init__(
            self,
            *,
            settings: PublisherSettings,
            client: CentralClient,
            transport: Transport,
            events: object,
        ) -> None:
            seen["publish"] = settings
            seen["publish at"] = client.address
            seen["transport"] = transport.names()

        def __enter__(self) -> Publisher:
            return self

        def __exit__(self, *exc_info: object) -> None: ...

        def publish(self, kind: object, identity: object, *_: Any, **others: Any) -> None:
            seen["identity"] = identity
            raise ConfigurationError("it has handed over what it read")

    def new_fetcher(*, settings: FetcherSettings, client: CentralClient, **_: Any) -> None:
        seen["fetch"] = settings
        seen["fetch at"] = client.address
        raise ConfigurationError("it has handed over what it read")

    async def serve(config: ServerConfig, **_: Any) -> None:
        seen["serve"] = config

    def nixl(agent_name: str, *, backend: str, devices: Sequence[str]) -> Any:
        name = f"nixl over {backend} by {devices}"
        return SimpleNamespace(names=lambda: [name], close=lambda: None)

    def near_ports(min_rate_gbps: float, *_: object) -> list[rdma.RdmaPort]:
        return [rdma.RdmaPort(f"at least {min_rate_gbps}", 0.0, None)]

    def follower(_: object, __: object, settings: FollowSettings, **___: Any) -> None:
        seen["follow"] = settings
        raise ConfigurationError("it has handed over what it read")

    def wait_until_ready(url: str, *, timeout_seconds: float, **_: Any) -> None:
        seen["ready"] = (url, timeout_seconds)

    monkeypatch.setattr(publisher, "ArtifactPublisher", Publisher)
    monkeypatch.setattr(fetcher, "ArtifactFetcher", new_fetcher)
    monkeypatch.setattr(follow_roots, "RootsFollower", follower)
    monkeypatch.setattr(app, "serve", serve)
    monkeypatch.setattr(nixl_transport, "NixlTransport", nixl)
    monkeypatch.setattr(rdma, "near_ports", near_ports)
    monkeypatch.setattr(readiness, "wait_until_ready", wait_until_ready)
    monkeypatch.setattr(CentralClient, "health", lambda _: None)
    for _node in made_up_node(monkeypatch):
        yield seen


def library(seen: dict[str, Any]) -> dict[str, Any]:
    """Return the same as a loader gets it from the environment."""
    ready = ReadinessSettings.from_environment()
    with CentralClient.from_environment() as client:
        address = client.address
    with closing(registry.open_transport()) as transport:
        transports = transport.names()
    found = {
        "publish": PublisherSettings.from_environment(node_rank=1),
        "publish at": address,
        "identity": probe_identity(get_kind(KIND), model_name="m", stated_roots=[""]).identity,
        "follow": FollowSettings.from_environment(),
        "fetch": FetcherSettings.from_environment(),
        "fetch at": address,
        "serve": ServerConfig.from_environment(),
        "transport": transports,
        "ready": (ready.url_on(1), ready.timeout_seconds),
    }
    seen.clear()
    return found


def verbs(seen: dict[str, Any], tmp_path: Path, only: str = "", *flags: str) -> dict[str, Any]:
    """Return what the verbs hand over; with flags, one of them alone."""
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    (root / "file").touch()
    of_cache = ("--kind", KIND, "--model", "m", "--root", str(root))
    for verb, args in (
        ("publish", (*of_cache, "--node-rank", "1")),
        ("publish", (*of_cache, "--node-rank", "1", "--follow")),
        ("fetch-and-install", (*of_cache, "--dry-run")),
        ("serve", ()),
    ):
        if only in ("", verb):
            seed = ("--seed",) if verb.startswith("fetch") and only else ()
            entry.main([verb, *(a for a in args if not seed or a != "--dry-run"), *seed, *flags])
    found = dict(seen)
    seen.clear()
    return found


@pytest.fixture(autouse=True)
def _a_head_for_node_1(seen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MX_ARTIFACT_HEAD_ADDRESS", "first")


def test_each_setting_has_a_value_to_try() -> None:
    assert {each.name for each in settings.SETTINGS} == VALUES.keys()


@pytest.mark.parametrize("setting", settings.SETTINGS, ids=lambda setting: setting.name)
def test_a_variable_does_the_same_in_both(
    setting: Setting[object],
    seen: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = library(seen)
    monkeypatch.setenv(setting.name, VALUES[setting.name])
    of_library = library(seen)
    assert of_library != before, f"nothing in the library reads {setting.name}"
    assert verbs(seen, tmp_path) == of_library


@pytest.mark.parametrize("option", FLAGS)
def test_a_flag_does_what_its_variable_does(
    option: SettingOption, seen: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (verb,) = (each for each in VERBS if option in each.params)
    setting = option.setting
    of_verb = verbs(seen, tmp_path, verb.name or "", option.opts[0], VALUES[setting.name])
    assert of_verb
    monkeypatch.setenv(setting.name, VALUES[setting.name])
    of_library = library(seen)
    if verb.name == "fetch-and-install":
        of_library["fetch"] = replace(of_library["fetch"], seed=True)
    assert of_verb == {name: of_library[name] for name in of_verb}


def test_settings_without_an_environment_have_the_defaults_of_the_table(
    seen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_ARTIFACT_SLOTS", "7")
    without_variables = {"HOME": os.environ["HOME"], "MX_ARTIFACT_RESIDENT_BUDGET": "1GiB"}
    made = PublisherSettings()
    serving = replace(made.serving, resident_budget_bytes=1 << 30)
    assert replace(made, serving=serving) == PublisherSettings.from_environment(
        env=without_variables
    )
    assert PublisherSettings.from_environment().serving.slots == 7
