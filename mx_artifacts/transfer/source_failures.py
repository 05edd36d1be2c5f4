"""The last error of each source, and the error of a transfer that no source can complete."""

from __future__ import annotations

from collections.abc import Iterable

from mx_artifacts.errors import LeaseError, MxArtifactsError, TransferFailedError, TransportError
from mx_artifacts.observability.catalogue import SourceFailed
from mx_artifacts.observability.events import EventSink
from mx_artifacts.transfer.base import SourceAddress


class SourceFailures:
    """Errors by endpoint. Any thread."""

    def __init__(self, events: EventSink) -> None:
        self.addresses: set[SourceAddress] = set()
        self.by_endpoint: dict[str, MxArtifactsError] = {}
        self._events = events

    def add(self, address: SourceAddress, error: MxArtifactsError) -> None:
        """Note a failure, and emit it unless the source failed by the same type before."""
        known = self.by_endpoint.get(address.endpoint)
        self.addresses.add(address)
        self.by_endpoint[address.endpoint] = error
        if type(known) is not type(error):
            self._events(SourceFailed(address.endpoint, error))

    def forget(self, addresses: Iterable[SourceAddress]) -> None:
        """Drop the errors of sources that have recovered."""
        for address in addresses:
            self.by_endpoint.pop(address.endpoint, None)

    def as_error(self, progress: str = "") -> MxArtifactsError:
        """Return the error to raise when no source is left.

        If there was one source, that is its own error; where that does not name the source, or
        `progress` is known, an error of the same type that does, with the source's as its cause.
        """
        attempts = list(self.by_endpoint.items())
        reached = f" ({progress})" if progress else ""
        if len(attempts) == 1:
            ((endpoint, error),) = attempts
            return _with_source(error, endpoint, reached)
        if not attempts:
            return TransferFailedError(
                f"no source has the missing parts{reached}", attempts=attempts
            )
        listed = "; ".join(f"{endpoint}: {cause}" for endpoint, cause in attempts)
        return TransferFailedError(f"no source delivered{reached}: {listed}", attempts=attempts)


def _with_source(error: MxArtifactsError, endpoint: str, reached: str) -> MxArtifactsError:
    if not isinstance(error, (TransportError, LeaseError)):
        return error
    where = "" if endpoint in str(error) else f"source {endpoint}: "
    if not (where or reached):
        return error
    explained = type(error)(f"{where}{error}{reached}", hint=error.hint())
    for name, value in vars(error).items():  # `is_silent` and the like
        if not name.startswith("_"):
            setattr(explained, name, value)
    explained.__cause__ = error
    return explained
