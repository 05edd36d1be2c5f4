"""A client of the central server, for sources and targets; it takes and returns core types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import grpc

from mx_artifacts.core.groups import MemberReport
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import (
    PodIdentity,
    SourceQuery,
    SourceRef,
    SourceStatus,
    StoredWorker,
    WorkerRecord,
    newest_first,
)
from mx_artifacts.errors import ConfigurationError, RemoteError
from mx_artifacts.node.environment import Environment
from mx_artifacts.parsing import parse_address
from mx_artifacts.settings import SERVER_ADDRESS
from mx_artifacts.wire import convert
from mx_artifacts.wire.channel import open_channel
from mx_artifacts.wire.gen.model_express import health_pb2, health_pb2_grpc, p2p_pb2, p2p_pb2_grpc
from mx_artifacts.wire.gen.mx_artifacts.v1 import group_pb2_grpc
from mx_artifacts.wire.groups import GroupAnswer, answer_from_wire, report_to_wire
from mx_artifacts.wire.status import error_from_central, error_from_central_without_groups

CALL_TIMEOUT_SECONDS = 10.0
"""Maximum duration of one call: a server that takes longer does not answer."""
_NO_POD = PodIdentity()


def _passes(ref: SourceRef, query: SourceQuery) -> bool:
    """Return whether a row passes the filters of `query` that can be checked on a row."""
    step = ref.training_step
    return (
        query.mx_source_id in (None, ref.mx_source_id)
        # Servers may compare names without case, as identities are compared.
        and (query.model_name is None or query.model_name.lower() == ref.model_name.lower())
        and query.worker_rank in (None, ref.worker_rank)
        and (query.min_updated_at_ms is None or ref.updated_at_ms >= query.min_updated_at_ms)
        and (
            query.min_training_step is None
            or (step is not None and step >= query.min_training_step)
        )
    )


class ServerHealth(NamedTuple):
    """What the server says of itself; `status` is "ok" when its metadata backend answers."""

    version: str
    status: str
    uptime_seconds: int


class CentralClient:
    """One channel to one central server. Thread-safe; the owner closes it.

    Every call ends within `timeout_seconds`. A server that cannot be reached is reported at once
    and not waited for; trying again is the caller's decision.

    Every method raises BackendUnavailableError when the server or its metadata backend does not
    answer, and RemoteError when something else than a ModelExpress server does.
    """

    def __init__(self, address: str, *, timeout_seconds: float = CALL_TIMEOUT_SECONDS) -> None:
        """Prepare for host:port `address`; connects on the first call.

        Raises:
            ConfigurationError: `address` is not host:port.
        """
        try:
            self._address = parse_address(address)
        except ValueError as error:
            raise ConfigurationError(
                f"the address of the central server is {address!r}, but should be {error}",
                hint="set MX_SERVER_ADDRESS, or --server, to host:port",
            ) from None
        self._timeout_seconds = timeout_seconds
        self._channel = open_channel(self._address)
        self._p2p: Any = p2p_pb2_grpc.P2pServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._health: Any = health_pb2_grpc.HealthServiceStub(self._channel)  # type: ignore[no-untyped-call]

        self._groups: Any = group_pb2_grpc.GroupServiceStub(self._channel)  # type: ignore[no-untyped-call]

    @classmethod
    def from_environment(cls, *, env: Environment | None = None) -> CentralClient:
        """Return a client of the server that MX_SERVER_ADDRESS (MODEL_EXPRESS_URL) names.

        `env` is read instead of this process's environment.

        Raises:
            ConfigurationError: the variable is not host:port.
        """
        return cls(SERVER_ADDRESS.read(env=env))

    @property
    def address(self) -> str:
        """The server's address, host:port."""
        return self._address

    def _call(self, method: Callable[..., Any], request: object) -> Any:
        try:
            return method(request, timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            raise error_from_central(error, self._address) from error

    def publish(
        self,
        identity: SourceIdentity,
        record: WorkerRecord,
        worker_id: str,
        pod: PodIdentity = _NO_POD,
    ) -> str:
        """Store or replace this worker's record; return its mx_source_id.

        The server sets `updated_at_ms`.

        Raises:
            ConfigurationError: the identity has no model name.
            RemoteError: the server refused, with its reason.
        """
        if not identity.model_name:
            raise ConfigurationError(
                "an identity without a model name cannot be published",
                hint="state the model with --model",
            )
        request = p2p_pb2.PublishMetadataRequest(
            identity=convert.identity_to_wire(identity),
            worker=convert.worker_to_wire(record),
            worker_id=worker_id,
            pod_name=pod.name,
            pod_uid=pod.uid,
            pod_namespace=pod.namespace,
        )
        answer = self._call(self._p2p.PublishMetadata, request)
        if not answer.success:
            raise RemoteError(
                f"central server {self._address} refused to publish {identity.model_name!r}: "
                f"{answer.message}",
                hint="see the log of the server",
            )
        convert.require(bool(answer.mx_source_id), "no mx_source_id", self._address)
        return str(answer.mx_source_id)

    def list_sources(
        self, query: SourceQuery, identity: SourceIdentity | None = None
    ) -> list[SourceRef]:
        """Return the sources that pass `query`, and have `identity` if one is given, newest first.

        An identity without a model name does not filter. Filters that an older server ignores are
        applied here. The status cannot be checked here, because a listing does not have it:
        `status` of an answer is the requested one, else UNKNOWN. Only the record has the real
        status.
        """
        here = query.mx_source_id  # the wire filters by identity only
        request = convert.query_to_wire(replace(query, limit=None) if here else query, identity)
        answer = self._call(self._p2p.ListSources, request)
        refs = [
            replace(ref, status=query.status or SourceStatus.UNKNOWN)
            for ref in map(convert.ref_from_wire, answer.instances)
            if _passes(ref, query)
        ]
        refs.sort(key=newest_first)
        return refs[: query.limit or None]

    def get_metadata(self, mx_source_id: str, worker_id: str) -> StoredWorker | None:
        """Return a worker's record, or None when there is none."""
        request = p2p_pb2.GetMetadataRequest(mx_source_id=mx_source_id, worker_id=worker_id)
        answer = self._call(self._p2p.GetMetadata, request)
        if not answer.found:
            return None
        return StoredWorker(
            mx_source_id=answer.mx_source_id,
            worker_id=answer.worker_id,
            identity=convert.identity_from_wire(answer.identity),
            record=convert.worker_from_wire(answer.worker),
        )

    def update_status(
        self,
        mx_source_id: str,
        worker_id: str,
        worker_rank: int,
        status: SourceStatus,
        source_load: float | None = None,
    ) -> bool:
        """Send a heartbeat; `source_load` is 0 (idle) to 1 (full), None when not known.

        Returns:
            False when the server has no such record: publish again.
        """
        request = p2p_pb2.UpdateStatusRequest(
            mx_source_id=mx_source_id,
            worker_id=worker_id,
            worker_rank=worker_rank,
            status=convert.status_to_wire(status),
            source_load=source_load,
        )
        return bool(self._call(self._p2p.UpdateStatus, request).success)

    def report_to_group(self, report: MemberReport) -> GroupAnswer:
        """Say how far a member of a group is; return its round as it is then.

        Raises:
            ConfigurationError: the group has another size, or all its members.
            ConflictError: another process that has this member id is alive.
            RecordNotFoundError: the server does not know the round (any more).
            RemoteError: also when the server has no groups.
        """
        try:
            answer = self._groups.Report(report_to_wire(report), timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise error_from_central_without_groups(self._address) from error
            raise error_from_central(error, self._address) from error
        return answer_from_wire(answer, report.size, self._address)

    def health(self) -> ServerHealth:
        """Ask the server for its version, status and age."""
        answer = self._call(self._health.GetHealth, health_pb2.HealthRequest())
        return ServerHealth(answer.version, answer.status, answer.uptime)

    def close(self) -> None:
        """Close the channel; calls in flight fail."""
        self._channel.close()

    def __enter__(self) -> CentralClient:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
