"""The whole exception tree.

Every error says what went wrong and where in its message, and what to do next in `hint()`.
`retryable` tells a caller whether the same call may succeed later without any change.
Foreign exceptions (of gRPC, NIXL, redis, the OS) are translated at the boundary they cross;
nothing else leaves the library.

    MxArtifactsError
      ConfigurationError
      NodeLimitError
      BundleError: UnsafePathError, NothingToPublishError, SourceChangedError, RelocationError
      IntegrityError: ManifestInvalidError, ArtifactIdMismatchError, ChunkChecksumError
      DiscoveryError: NoSourceError, IncompatibleSourceError
      LeaseError: NoFreeSlotError, LeaseExpiredError, UnknownLeaseError
      TransportError: TransportUnavailableError, TransportNotAllowedError, RegistrationError,
        ReadTimeoutError, PeerLostError, OtherTransportError
      MetadataError: BackendUnavailableError, RecordNotFoundError, ConflictError
      RemoteError: EngineNotReadyError
      TransferFailedError
      InstallError: UnusablePlaceError, InstallLockedError, NoSpaceError,
        InstallVerificationError, RollbackFailedError
      GroupError: GroupFailedError, GroupInDoubtError
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of `mx-artifact`, documented in docs/operations/exit-codes.md."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    OK = 0, "done"
    UNEXPECTED = 1, "an error without a code of its own, or one that should not happen"
    USAGE = 2, "a flag, argument or variable makes no sense"
    PARTIAL = (
        3,
        "done in part: of several kinds some failed, entries that changed since were kept, an "
        "installed cache was not (only) hit, or nothing of a fetched one will be",
    )
    NO_SOURCE = 10, "nobody serves what was asked for"
    LOCKED = 11, "another process installs into the same root"
    INTEGRITY = 12, "bytes or tables are damaged or hostile; nothing was installed"
    INCOMPATIBLE = 13, "there are sources, but none fits this node"
    UNREACHABLE = 14, "the central server, its backend or a source does not answer properly"
    TRANSPORT = 15, "the data plane is not available or failed"
    NO_SPACE = 16, "a file system is full, or would become so; the roots are as they were"
    GROUP_FAILED = (
        17,
        "a member of the group failed; no member installed, the roots are as they were",
    )
    GROUP_IN_DOUBT = (
        18,
        "this node's roots are as they were, but other members of the group may have installed: "
        "run the group again before any engine starts",
    )
    INTERRUPTED = 130, "ended by SIGINT, SIGTERM or SIGHUP before it was done"
    READER_LEFT = (
        141,
        "whoever read stdout left before all was written (`| head`); a shell sees the same of "
        "programs that SIGPIPE ends. Nothing is said on stderr",
    )


class MxArtifactsError(Exception):
    """Base of every error this library raises.

    `hint` overrides the class's default advice for one instance.
    """

    retryable: bool = False
    exit_code: ExitCode = ExitCode.UNEXPECTED
    default_hint: str = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self._hint = hint

    def hint(self) -> str:
        """Return the next step for the reader, or an empty string."""
        return self._hint if self._hint is not None else self.default_hint


class NodeLimitError(MxArtifactsError):
    """This process has reached a limit of its user, container or node: threads, files, memory."""

    default_hint = "raise the limit that the message names, or run fewer processes here"


class ConfigurationError(MxArtifactsError):
    """A setting, flag or argument has a value that makes no sense."""

    exit_code = ExitCode.USAGE
    default_hint = "correct what the message names; --help and docs/operations say what it takes"


# --- bundles -------------------------------------------------------------------------------------


class BundleError(MxArtifactsError):
    """A bundle cannot be made or read."""

    exit_code = ExitCode.INTEGRITY
    default_hint = "it is damaged, or no bundle of a cache: publish the cache anew on its source"


class UnsafePathError(BundleError):
    """A bundle member, or a link in the target, would write outside its root."""

    default_hint = "do not install this artifact; find out who published it"


class NothingToPublishError(BundleError):
    """A cache root is absent, unreadable or holds no files."""

    exit_code = ExitCode.USAGE
    default_hint = "start the engine once so that it fills its cache, or name its root with --root"


class SourceChangedError(BundleError):
    """A file kept changing while it was packed."""

    retryable = True
    exit_code = ExitCode.UNEXPECTED
    default_hint = "publish when the engine has finished compiling"


class RelocationError(BundleError):
    """A path inside the cache cannot be rewritten for the target root."""

    exit_code = ExitCode.INCOMPATIBLE
    default_hint = "use the same absolute cache root on source and target"


# --- integrity -----------------------------------------------------------------------------------


class IntegrityError(MxArtifactsError):
    """Bytes or tables are not what their hash promises."""

    exit_code = ExitCode.INTEGRITY
    default_hint = "try again; if it fails again, find out what damages the data, or who changes it"


class ManifestInvalidError(IntegrityError):
    """Header, file table and chunk table do not describe one artifact."""

    default_hint = "the source serves a damaged artifact; restart its publisher"


class ArtifactIdMismatchError(IntegrityError):
    """The manifest's hash is not the artifact id that was announced."""

    default_hint = "the source serves another artifact than it announced; restart its publisher"


class ChunkChecksumError(IntegrityError):
    """A chunk arrived with the wrong CRC32C."""

    retryable = True
    default_hint = "the source's memory or the network damages data; try another source"


# --- discovery -----------------------------------------------------------------------------------


class DiscoveryError(MxArtifactsError):
    """No usable source was found."""

    exit_code = ExitCode.NO_SOURCE
    default_hint = "see what is served now with `mx-artifact sources list`"


class NoSourceError(DiscoveryError):
    """Nobody serves this identity now."""

    retryable = True
    default_hint = "start `mx-artifact publish` on a warm node, or wait with --wait 60s"


class IncompatibleSourceError(DiscoveryError):
    """Sources exist, but none fits; `reasons` maps a source to why."""

    exit_code = ExitCode.INCOMPATIBLE
    default_hint = "see which fields differ, and what to do, with `mx-artifact why`"

    def __init__(
        self, message: str, *, reasons: Mapping[str, str] | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.reasons = dict(reasons or {})


# --- leases --------------------------------------------------------------------------------------


class LeaseError(MxArtifactsError):
    """A lease cannot be granted or used."""

    exit_code = ExitCode.TRANSPORT
    default_hint = "try again; if it fails again, see the source's log and the load of both nodes"


class NoFreeSlotError(LeaseError):
    """All slots are leased now; the only error that becomes RESOURCE_EXHAUSTED."""

    retryable = True
    default_hint = "the source is busy; raise its --slots, or wait"


class LeaseExpiredError(LeaseError):
    """The lease ran out before it was released or renewed."""

    retryable = True


class UnknownLeaseError(LeaseError):
    """The source does not know this lease."""


# --- transport -----------------------------------------------------------------------------------


class TransportError(MxArtifactsError):
    """The data plane failed."""

    exit_code = ExitCode.TRANSPORT
    default_hint = "see stderr for the reason; with NIXL, UCX_LOG_LEVEL=info tells more"


class TransportUnavailableError(TransportError):
    """The transport is not installed or does not start here."""

    default_hint = "install it (`pip install nixl`) and check UCX with UCX_LOG_LEVEL=info"


class TransportNotAllowedError(TransportError):
    """The source can be read only by a transport that the operator has not allowed here."""

    default_hint = (
        "where everybody in the network may be trusted, set MX_TRANSPORT=nixl here; else publish "
        "with mx-artifact, which serves by a stream that trusts nobody (docs/operations/network.md)"
    )


class RegistrationError(TransportError):
    """Memory cannot be registered for one-sided reads."""

    default_hint = "raise the memlock limit (`ulimit -l unlimited`) or lower the buffer sizes"


class ReadTimeoutError(TransportError):
    """A read did not finish in time; its buffer is quarantined until it does."""

    retryable = True
    default_hint = (
        "check that the source is alive and that this node reaches its ports "
        "(docs/operations/network.md)"
    )


class PeerLostError(TransportError):
    """The peer went away while it was read."""

    retryable = True
    default_hint = "see that the source runs and can be reached from here, then try again"

    def __init__(self, message: str, *, hint: str | None = None, is_silent: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.is_silent = is_silent
        """Whether only one call was not answered in time: it may be busy."""


class OtherTransportError(PeerLostError):
    """The source cannot be reached by the preferred transport; the next connection uses another."""


# --- metadata ------------------------------------------------------------------------------------


class MetadataError(MxArtifactsError):
    """The central server or its backend failed."""

    exit_code = ExitCode.UNREACHABLE
    default_hint = "try again; if it fails again, see the central server's log"


class BackendUnavailableError(MetadataError):
    """The central server or its metadata backend cannot be reached."""

    retryable = True
    default_hint = "check MX_SERVER_ADDRESS and that `mx-artifact serve` runs there"


class RecordNotFoundError(MetadataError):
    """The record does not exist (never published, lost, or collected)."""

    exit_code = ExitCode.NO_SOURCE
    default_hint = "see what is served now with `mx-artifact sources list`"


class ConflictError(MetadataError):
    """The record was changed by someone else in between."""

    retryable = True


# --- remote and transfer -------------------------------------------------------------------------


class RemoteError(MxArtifactsError):
    """A peer answered with an error that has no class of its own."""

    exit_code = ExitCode.UNREACHABLE
    default_hint = "see that peer's log, and whether something else listens at its address"


class EngineNotReadyError(RemoteError):
    """The inference engine whose cache is to be published did not become ready in time."""

    retryable = True
    default_hint = "see the engine's log; raise MX_ARTIFACT_READY_TIMEOUT_SECS if it needs longer"


class TransferFailedError(MxArtifactsError):
    """No source could deliver; `attempts` lists (source, cause) in order."""

    exit_code = ExitCode.TRANSPORT

    def __init__(
        self,
        message: str,
        *,
        attempts: Sequence[tuple[str, MxArtifactsError]] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.attempts = tuple(attempts)
        if self.attempts:  # the last cause decides what a script sees
            self.exit_code = self.attempts[-1][1].exit_code
            self.retryable = any(cause.retryable for _, cause in self.attempts)

    def hint(self) -> str:
        """Return this error's own hint, else the last cause's."""
        return super().hint() or (self.attempts[-1][1].hint() if self.attempts else "")


# --- install -------------------------------------------------------------------------------------


class InstallError(MxArtifactsError):
    """The artifact cannot be installed; the cache root is as it was."""

    default_hint = "see that the place which the message names can be written, then try again"


class UnusablePlaceError(InstallError):
    """A cache root or the bundle root cannot be one, or this user may not write there."""

    exit_code = ExitCode.USAGE


class InstallLockedError(InstallError):
    """Another process installs into the same root."""

    retryable = True
    exit_code = ExitCode.LOCKED
    default_hint = "wait for the other installer, or raise --lock-timeout"


class NoSpaceError(InstallError):
    """The file system is, or would become, full."""

    exit_code = ExitCode.NO_SPACE
    default_hint = "free space (or inodes) there, or name another directory with --root"


class InstallVerificationError(InstallError):
    """What was staged is not what the artifact says."""

    exit_code = ExitCode.INTEGRITY
    default_hint = "install again; if it fails again, check the target's disk and memory"


class RollbackFailedError(InstallError):
    """An install failed and its changes could not all be taken back."""

    default_hint = "remove the cache root and install again"


# --- groups --------------------------------------------------------------------------------------


class GroupError(MxArtifactsError):
    """A group of nodes did not install, or not all of it."""

    default_hint = "run the group again on all of its members"


class GroupFailedError(GroupError):
    """A member failed, so no member keeps anything; the message names it and says why."""

    exit_code = ExitCode.GROUP_FAILED

    def __init__(self, message: str, *, hint: str | None = None, retryable: bool = True) -> None:
        super().__init__(message, hint=hint)
        self.retryable = retryable


class GroupInDoubtError(GroupError):
    """This node's roots are as they were; other members may have kept what they installed."""

    exit_code = ExitCode.GROUP_IN_DOUBT
    retryable = True
    default_hint = (
        "run the group again on all of its members before an engine starts, or undo it where it "
        "was installed with `mx-artifact uninstall`"
    )
