"""Conversion between gRPC status codes and errors: the only table for it."""

from __future__ import annotations

import grpc

from mx_artifacts.core.foreign_text import shown
from mx_artifacts.errors import (
    ArtifactIdMismatchError,
    BackendUnavailableError,
    ConfigurationError,
    ConflictError,
    IntegrityError,
    LeaseError,
    LeaseExpiredError,
    ManifestInvalidError,
    MxArtifactsError,
    NoFreeSlotError,
    PeerLostError,
    RecordNotFoundError,
    RemoteError,
    TransportError,
    TransportNotAllowedError,
    UnknownLeaseError,
)

MAX_DETAILS_CHARACTERS = 600
"""Maximum length of what a peer says of a failed call [characters]: our own servers' messages name
a cause and the next step, and are shorter."""

# First match wins, so subclasses come before their bases. Only "no free slot" is
# RESOURCE_EXHAUSTED: a target must be able to tell "busy" from "broken" (docs/adr/0009).
_TO_CODE: tuple[tuple[type[MxArtifactsError], grpc.StatusCode], ...] = (
    (NoFreeSlotError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (LeaseExpiredError, grpc.StatusCode.FAILED_PRECONDITION),
    (TransportNotAllowedError, grpc.StatusCode.FAILED_PRECONDITION),
    (UnknownLeaseError, grpc.StatusCode.NOT_FOUND),
    (LeaseError, grpc.StatusCode.UNAVAILABLE),  # none is granted any more: the source is stopping
    (RecordNotFoundError, grpc.StatusCode.NOT_FOUND),
    (ConflictError, grpc.StatusCode.ABORTED),
    (BackendUnavailableError, grpc.StatusCode.UNAVAILABLE),
    (ConfigurationError, grpc.StatusCode.INVALID_ARGUMENT),
    (ManifestInvalidError, grpc.StatusCode.INVALID_ARGUMENT),
    (ArtifactIdMismatchError, grpc.StatusCode.FAILED_PRECONDITION),
    (IntegrityError, grpc.StatusCode.DATA_LOSS),
    (TransportError, grpc.StatusCode.INTERNAL),
)


def code_of(error: MxArtifactsError) -> grpc.StatusCode:
    """Return the status code with which a server answers `error`."""
    for kind, code in _TO_CODE:
        if isinstance(error, kind):
            return code
    return grpc.StatusCode.INTERNAL


def _describe(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    code = error.code() if hasattr(error, "code") else grpc.StatusCode.UNKNOWN
    return code, details_of(error) or code.name


def details_of(error: grpc.RpcError) -> str:
    """Return what a peer says of a call that failed, fit for a message."""
    details = (error.details() if hasattr(error, "details") else str(error)) or ""
    return shown(details, MAX_DETAILS_CHARACTERS)


def _is_a_stranger(code: grpc.StatusCode, details: str) -> bool:
    # gRPC's words for a peer that speaks something else on an open port
    return code is grpc.StatusCode.UNIMPLEMENTED or "Failed parsing HTTP/2" in details


def error_from_central(error: grpc.RpcError, address: str) -> MxArtifactsError:
    """Translate a failed call to the central server at `address`."""
    code, details = _describe(error)
    where = f"central server {address}"
    if _is_a_stranger(code, details):
        return RemoteError(
            f"{where} is not a ModelExpress server: {details}",
            hint="check MX_SERVER_ADDRESS, because another program listens at this address",
        )
    if code is grpc.StatusCode.UNAVAILABLE:
        return BackendUnavailableError(f"{where} is unavailable: {details}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return BackendUnavailableError(f"{where} did not answer in time")
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return ConfigurationError(f"{where} refused the request: {details}")
    if code is grpc.StatusCode.NOT_FOUND:
        return RecordNotFoundError(f"{where}: {details}")
    if code is grpc.StatusCode.ABORTED:
        return ConflictError(f"{where} refused the request: {details}")
    return RemoteError(f"{where} failed ({code.name}): {details}")


def error_from_central_without_groups(address: str) -> RemoteError:
    """Return the error for a central server of the reference, or for an older one of ours."""
    return RemoteError(
        f"central server {address} does not support groups, so members cannot agree",
        hint="run `mx-artifact serve` of this version there. Without it, do not install caches "
        "that must be on all nodes; install the others without --group",
    )


def error_from_worker(error: grpc.RpcError, endpoint: str) -> MxArtifactsError:
    """Translate a failed call to the source worker at `endpoint`."""
    code, details = _describe(error)
    where = f"source {endpoint}"
    if _is_a_stranger(code, details):
        return RemoteError(
            f"{where} is not a ModelExpress worker: {details}",
            hint="state the address of a source, as `mx-artifact sources list` shows it",
        )
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return NoFreeSlotError(f"{where} is busy: {details}")
    if code is grpc.StatusCode.UNAVAILABLE:
        return PeerLostError(f"{where} was lost: {details}")
    if code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):  # by us, then
        is_silent = code is grpc.StatusCode.DEADLINE_EXCEEDED
        return PeerLostError(f"{where} did not answer in time", is_silent=is_silent)
    if code is grpc.StatusCode.NOT_FOUND:
        return RecordNotFoundError(f"{where}: {details}")
    return RemoteError(f"{where} failed ({code.name}): {details}")
