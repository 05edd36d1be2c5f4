"""Receives one artifact from all sources that deliver it, into the roots for which it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint, StagedArtifact
from mx_artifacts.artifacts.target.root_receiver import RootReceiver, WantedBundle
from mx_artifacts.artifacts.target.source_supply import SourceSupply, address_of
from mx_artifacts.core.identity import SourceType
from mx_artifacts.errors import (
    BundleError,
    ConfigurationError,
    InstallError,
    MxArtifactsError,
    RegistrationError,
    TransferFailedError,
    TransportUnavailableError,
)
from mx_artifacts.observability.events import EventSink
from mx_artifacts.runtime.clock import SYSTEM_CLOCK
from mx_artifacts.runtime.deadline import Deadline
from mx_artifacts.transfer.artifact.fetch import fetch_artifact
from mx_artifacts.transfer.artifact.receiver import Receiver
from mx_artifacts.transfer.base import SourceAddress
from mx_artifacts.transfer.engine import TransferLimits
from mx_artifacts.transfer.source_manager import FindSources, nobody
from mx_artifacts.transport.base import Transport

# Failures of this node: another source would meet them too.
_OURS = (ConfigurationError, InstallError, RegistrationError, TransportUnavailableError)

FindMore = Callable[[str], Iterable[SourceAddress]]
"""Returns the sources that serve the artifact of that id by now."""
WrapReceiver = Callable[[RootReceiver, ArtifactSourceEndpoint], Receiver]
"""Returns what receives in a receiver's place, and passes on to it what it wants."""


def no_more(artifact_id: str) -> Collection[SourceAddress]:
    """Know no further source of an artifact."""
    return ()


def not_wrapped(receiver: RootReceiver, source: ArtifactSourceEndpoint) -> Receiver:
    """Let it receive by itself."""
    return receiver


@dataclass(frozen=True)
class IncomingArtifact:
    """What is wanted of an artifact of a cache kind (`name`), and how it travels."""

    name: str
    source_type: SourceType
    wanted: Sequence[WantedBundle]
    transport: Transport
    limits: TransferLimits
    events: EventSink

    def from_sources(
        self,
        sources: Sequence[ArtifactSourceEndpoint],
        find_more: FindSources = nobody,
        wrap: WrapReceiver = not_wrapped,
    ) -> StagedArtifact:
        """Fetch one artifact from those of `sources`, which all serve it, that deliver.

        Raises what `fetch_artifact` and `RootReceiver` raise.
        """
        receiver = RootReceiver(self.wanted, self.source_type)
        by_address = {address_of(source): source for source in sources}
        try:
            received = fetch_artifact(
                list(by_address),
                sources[0].artifact_id,
                self.transport,
                wrap(receiver, sources[0]),
                self.limits,
                find_more=find_more,
                events=self.events,
            )
        except MxArtifactsError as error:
            # When it was the sources' fault, what verified stays for the next fetch.
            receiver.close(keep=not isinstance(error, (*_OURS, BundleError)))
            raise
        except BaseException:
            receiver.close()
            raise
        first = by_address[received.first]
        return StagedArtifact(
            receiver.stagings,
            received.manifest,
            replace(first, artifact_id=received.manifest.artifact_id),
            received.transferred_bytes,
            received.delivered,
            received.left_behind,
            received.transports,
        )

    def from_any(
        self,
        candidates: Iterable[ArtifactSourceEndpoint],
        find_more: FindMore = no_more,
        wrap: WrapReceiver = not_wrapped,
    ) -> StagedArtifact:
        """Fetch the artifact of the first candidate; if all its sources fail, that of the next.

        It takes only as many `candidates` as it reads from at once, and further ones if these fail
        or deliver nothing.

        Raises:
            TransferFailedError: all failed; it lists each source and its cause.
        """
        supply = SourceSupply(candidates, self.events)
        deadlines: dict[str, Deadline] = {}
        attempts: list[tuple[str, MxArtifactsError]] = []
        while sources := supply.next_sources():
            artifact_id = sources[0].artifact_id
            deadline = deadlines.setdefault(
                artifact_id, Deadline(self.limits.timeout_seconds, SYSTEM_CLOCK)
            )
            if deadline.passed:
                continue
            limits = replace(self.limits, timeout_seconds=deadline.remaining())
            incoming = replace(self, limits=limits, events=supply.watch)
            find = partial(supply.further, artifact_id, partial(find_more, artifact_id))
            try:
                return incoming.from_sources(sources, find, wrap)
            except _OURS:
                raise
            except TransferFailedError as error:
                attempts += error.attempts
            except MxArtifactsError as error:
                attempts.append((sources[0].worker_grpc_endpoint, error))
        listed = "; ".join(f"{endpoint}: {cause}" for endpoint, cause in attempts)
        raise TransferFailedError(
            f"no source delivered the {self.name} cache: {listed}", attempts=attempts
        )
