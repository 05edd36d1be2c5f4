"""Settings for serving artifacts, used by publishers, seeds and the worker's server."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mx_artifacts import settings
from mx_artifacts.compression import check_mode
from mx_artifacts.configuration import (
    EnvironmentSettings,
    SettingValues,
    from_setting,
    from_settings,
)
from mx_artifacts.core.sources import PodIdentity
from mx_artifacts.errors import BackendUnavailableError, ConfigurationError
from mx_artifacts.node.network import worker_addresses

_MAX_PORT = 65535


def _own_pod(values: SettingValues) -> PodIdentity:
    """Return the Kubernetes pod of this process, as the downward API's variables name it."""
    return PodIdentity(
        name=values.read(settings.POD_NAME),
        uid=values.read(settings.POD_UID),
        namespace=values.read(settings.POD_NAMESPACE),
    )


@dataclass(frozen=True)
class ServingSettings(EnvironmentSettings):
    """How a process serves. A fetcher that does not seed needs some of these values, too.

    Attributes:
        bundle_root: directory for bundles that exceed the memory, in files that vanish with the
            process, and for the locks by which processes of one node take turns to fetch.
        resident_budget_bytes: memory for all bundles that this process serves.
        slots: number of registered buffers: those of one chunk each that serve an artifact that is
            not in memory, and those of the reads that a target has in flight.
        max_bytes_per_second: limit of all targets of this source together, and of each transfer;
            None: no limit.
        compression: "auto", "zstd" or "none", for fetches. As a source, it compresses blocks for
            targets that request it, unless this is "none".
        topology: labels for the place of this node, for targets that choose sources by them.
        host: host to which targets connect; "": this node's address towards the central server.
        listen: the address to listen on; "": `host` where that is this machine's, else this node's
            address towards the central server. 0.0.0.0 (all) must be stated.
        port: base port of the worker service, to which `device_index` is added; 0: any. If it is in
            use, that is an error if `is_port_required`, else another port is taken.
        stream_port: base port of the stream transport, with the same rules and
            `is_stream_port_required`.
        transport: the data plane: "auto", "stream", "nixl" or an installed package's. It is used by
            the caller that opens the transport (`open_transport`).
        pod: the Kubernetes pod of this process.
        heartbeat_interval_seconds: between two reports to the central server.
        lease_ttl_seconds: how long a target may hold a chunk without renewing.
    """

    bundle_root: Path = from_setting(settings.BUNDLE_ROOT)
    resident_budget_bytes: int = from_setting(settings.RESIDENT_BUDGET)
    slots: int = from_setting(settings.SLOTS)
    max_bytes_per_second: float | None = from_setting(settings.MAX_RATE)
    compression: str = from_setting(settings.COMPRESSION)
    topology: Mapping[str, str] = from_setting(settings.TOPOLOGY)
    host: str = from_setting(settings.WORKER_HOST)
    listen: str = from_setting(settings.WORKER_LISTEN)
    port: int = from_setting(settings.WORKER_GRPC_PORT)
    is_port_required: bool = from_settings(
        lambda values: values.is_stated(settings.WORKER_GRPC_PORT), lambda: False
    )
    stream_port: int = from_setting(settings.WORKER_STREAM_PORT)
    is_stream_port_required: bool = from_settings(
        lambda values: values.is_stated(settings.WORKER_STREAM_PORT), lambda: False
    )
    device_index: int = 0
    transport: str = from_setting(settings.TRANSPORT)
    pod: PodIdentity = from_settings(_own_pod, PodIdentity)
    heartbeat_interval_seconds: float = from_setting(settings.HEARTBEAT_INTERVAL)
    lease_ttl_seconds: float = from_setting(settings.LEASE_TTL)

    @property
    def device_port(self) -> int:
        """The port of this device's worker service; 0: any.

        Raises:
            ConfigurationError: there is no such port.
        """
        return self._of_device(self.port, "--port (MX_WORKER_GRPC_PORT)")

    @property
    def device_stream_port(self) -> int:
        """The port of this device's stream transport; as `device_port`."""
        return self._of_device(self.stream_port, "MX_WORKER_STREAM_PORT")

    def _of_device(self, base: int, setting: str) -> int:
        port = base + self.device_index if base else 0
        if port > _MAX_PORT:
            raise ConfigurationError(
                f"the port is {base} + device index {self.device_index}, which is above "
                f"{_MAX_PORT}",
                hint=f"set {setting} to a lower port",
            )
        return port

    def check(self, server: str) -> None:
        """Check that a worker with these settings can be announced at `server`; do not wait.

        Raises:
            ConfigurationError: nobody else could use what would be announced; there is no such
                port; or zstd is demanded and not installed.
        """
        check_mode(self.compression)
        _ = self.device_port, self.device_stream_port
        with suppress(BackendUnavailableError):  # that is to be waited for
            self.towards(server)

    def towards(self, server: str) -> ServingSettings:
        """Return these settings with `host` and `listen` filled in, for `server` (host:port).

        Raises:
            ConfigurationError: nobody else could use what would be announced.
            BackendUnavailableError: the server's name does not resolve (now), or no route leads
                there.
        """
        addresses = worker_addresses(self.host, self.listen, server)
        return dataclasses.replace(self, host=addresses.announced, listen=addresses.listen)
