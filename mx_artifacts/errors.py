"""The whole exception tree.

Every error says what went wrong and where in its message, and what to do next in `hint()`.
`retryable` tells a caller whether the same call may succeed later without any change.
Exceptions of gRPC, NIXL, redis and the OS are translated where our code calls them, so the library
raises errors of this tree only.

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
    UNEXPECTED = 1, "an error without a code of its own, or an error that should not happen"
    USAGE = 2, "a flag, argument or variable is invalid"
    PARTIAL = (
        3,
        "done in part: some of several kinds failed; entries that changed after the install were "
        "kept; the engine missed the installed cache at least once; or the engine will use nothing "
        "of a fetched cache",
    )
    NO_SOURCE = 10, "no source serves the requested cache"
    LOCKED = 11, "another process installs into the same root"
    INTEGRITY = 12, "bytes or tables are damaged or hostile; nothing was installed"
    INCOMPATIBLE = 13, "there are sources, but none fits this node"
    UNREACHABLE = 14, "the central server, its backend or a source gives no answer or a wrong one"
    TRANSPORT = 15, "the data plane is not available or failed"
    NO_SPACE = 16, "a file system is full, or would become full; the roots are as they were"
    GROUP_FAILED = (
        17,
        "a member of the group failed; no member installed anything, the roots are as they were",
    )
    GROUP_IN_DOUBT = (
        18,
        "this node's roots are as they were, but other members of the group may have installed: "
        "run the group again before any engine starts",
    )
    INTERRUPTED = 130, "ended by SIGINT, SIGTERM or SIGHUP before it was done"
    READER_LEFT = (
        141,
        "the reader of stdout closed it before everything was written (`| head`); a shell reports "
        "the same code for programs that SIGPIPE ends. Nothing is printed on stderr",
    )


class MxArtifactsError(Exception):
    """Base of every error that this library raises.

    `hint` replaces the class's default hint for one instance.
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
    """This process reached a limit of its user, container or node: threads, open files, memory."""

    default_hint = "raise the limit that the message names, or run fewer processes on this node"


class ConfigurationError(MxArtifactsError):
    """A setting, flag or argument has an invalid value."""

    exit_code = ExitCode.USAGE
    default_hint = (
        "correct the value that the message names; --help and docs/operations list valid values"
    )


# --- bundles -------------------------------------------------------------------------------------


class BundleError(MxArtifactsError):
    """A bundle cannot be made or read."""

    exit_code = ExitCode.INTEGRITY
    default_hint = (
        "it is damaged, or it is not a bundle of a cache: publish the cache again on its source"
    )


class UnsafePathError(BundleError):
    """A bundle member, or a link in the target, would lead a write outside the root."""

    default_hint = "do not install this artifact; find out who published it"


class NothingToPublishError(BundleError):
    """A cache root is absent, unreadable or holds no files."""

    exit_code = ExitCode.USAGE
    default_hint = "start the engine once so that it fills its cache, or name its root with --root"


class SourceChangedError(BundleError):
    """A file changed again and again while it was packed."""

    retryable = True
    exit_code = ExitCode.UNEXPECTED
    default_hint = "publish after the engine has finished compiling"


class RelocationError(BundleError):
    """A path inside the cache cannot be rewritten for the target root."""

    exit_code = ExitCode.INCOMPATIBLE
    default_hint = "use the same absolute cache root on source and target"


# --- integrity -----------------------------------------------------------------------------------


class IntegrityError(MxArtifactsError):
    """Bytes or tables do not match their hash."""

    exit_code = ExitCode.INTEGRITY
    default_hint = "try again; if it fails again, find out what damages or changes the data"


class ManifestInvalidError(IntegrityError):
    """Header, file table and chunk table do not form one valid manifest."""

    default_hint = "the source serves a damaged artifact; restart its publisher"


class ArtifactIdMismatchError(IntegrityError):
    """The hash of the manifest is not the announced artifact id."""

    default_hint = "the source serves a different artifact than it announced; restart its publisher"


class ChunkChecksumError(IntegrityError):
    """A chunk arrived with a wrong CRC32C."""

    retryable = True
    default_hint = "the source's memory or the network damages data; use another source"


# --- discovery -----------------------------------------------------------------------------------


class DiscoveryError(MxArtifactsError):
    """No usable source was found."""

    exit_code = ExitCode.NO_SOURCE
    default_hint = "`mx-artifact sources list` shows what is served now"


class NoSourceError(DiscoveryError):
    """No source serves this identity now."""

    retryable = True
    default_hint = "start `mx-artifact publish` on a warm node, or wait with --wait 60s"


class IncompatibleSourceError(DiscoveryError):
    """Sources exist, but none fits this node; `reasons` says why, for each source."""

    exit_code = ExitCode.INCOMPATIBLE
    default_hint = "`mx-artifact why` shows which fields differ, and what to do"

    def __init__(
        self, message: str, *, reasons: Mapping[str, str] | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.reasons = dict(reasons or {})


# --- leases --------------------------------------------------------------------------------------


class LeaseError(MxArtifactsError):
    """A lease cannot be granted or used."""

    exit_code = ExitCode.TRANSPORT
    default_hint = "try again; if it fails again, check the source's log and the load of both nodes"


class NoFreeSlotError(LeaseError):
    """All slots are leased now; this is the only error that becomes RESOURCE_EXHAUSTED."""

    retryable = True
    default_hint = "the source is busy; wait, or raise its --slots"


class LeaseExpiredError(LeaseError):
    """The lease expired before it was released or renewed."""

    retryable = True


class UnknownLeaseError(LeaseError):
    """The source does not know this lease."""


# --- transport -----------------------------------------------------------------------------------


class TransportError(MxArtifactsError):
    """The data plane failed."""

    exit_code = ExitCode.TRANSPORT
    default_hint = "see stderr for the reason; with NIXL, set UCX_LOG_LEVEL=info for more details"


class TransportUnavailableError(TransportError):
    """The transport is not installed on this node, or does not start."""

    default_hint = "install it (`pip install nixl`) and check UCX with UCX_LOG_LEVEL=info"


class TransportNotAllowedError(TransportError):
    """The source can be read only by a transport that the operator has not allowed here."""

    default_hint = (
        "if you trust everyone in the network, set MX_TRANSPORT=nixl here; else publish with "
        "mx-artifact, whose stream transport needs no trust (docs/operations/network.md)"
    )


class RegistrationError(TransportError):
    """Memory cannot be registered for one-sided reads."""

    default_hint = "raise the memlock limit (`ulimit -l unlimited`) or lower the buffer sizes"


class ReadTimeoutError(TransportError):
    """A read did not finish in time; its buffer is quarantined until the read ends."""

    retryable = True
    default_hint = (
        "check that the source runs and that this node can reach its ports "
        "(docs/operations/network.md)"
    )


class PeerLostError(TransportError):
    """The connection to the peer was lost while this node read from it."""

    retryable = True
    default_hint = "check that the source runs and that this node can reach it, then try again"

    def __init__(self, message: str, *, hint: str | None = None, is_silent: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.is_silent = is_silent
        """Whether the peer only did not answer a call in time: it may be busy."""


class OtherTransportError(PeerLostError):
    """The source cannot be reached by the preferred transport; the next connection uses another."""


# --- metadata ------------------------------------------------------------------------------------


class MetadataError(MxArtifactsError):
    """The central server or its backend failed."""

    exit_code = ExitCode.UNREACHABLE
    default_hint = "try again; if it fails again, check the central server's log"


class BackendUnavailableError(MetadataError):
    """The central server or its metadata backend cannot be reached."""

    retryable = True
    default_hint = "check MX_SERVER_ADDRESS, and that `mx-artifact serve` runs at that address"


class RecordNotFoundError(MetadataError):
    """The record does not exist (never published, lost, or deleted by the reaper)."""

    exit_code = ExitCode.NO_SOURCE
    default_hint = "`mx-artifact sources list` shows what is served now"


class ConflictError(MetadataError):
    """Another process changed the record in the meantime."""

    retryable = True


# --- remote and transfer -------------------------------------------------------------------------


class RemoteError(MxArtifactsError):
    """A peer answered with an error that has no class of its own."""

    exit_code = ExitCode.UNREACHABLE
    default_hint = "check that peer's log, and whether another program listens at its address"


class EngineNotReadyError(RemoteError):
    """The inference engine whose cache should be published did not become ready in time."""

    retryable = True
    default_hint = "check the engine's log; raise MX_ARTIFACT_READY_TIMEOUT_SECS if it needs longer"


class TransferFailedError(MxArtifactsError):
    """No source could deliver the artifact; `attempts` lists (source, cause) in order."""

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
        """Return this error's own hint, or else that of the last cause."""
        return super().hint() or (self.attempts[-1][1].hint() if self.attempts else "")


# --- install -------------------------------------------------------------------------------------


class InstallError(MxArtifactsError):
    """The artifact cannot be installed; the cache root is as it was."""

    default_hint = "check that you can write to the path in the message, then try again"


class UnusablePlaceError(InstallError):
    """A path cannot be a cache root or the bundle root, or this user may not write there."""

    exit_code = ExitCode.USAGE


class InstallLockedError(InstallError):
    """Another process installs into the same root."""

    retryable = True
    exit_code = ExitCode.LOCKED
    default_hint = "wait for the other installer, or raise --lock-timeout"


class NoSpaceError(InstallError):
    """The file system is full, or would become full."""

    exit_code = ExitCode.NO_SPACE
    default_hint = "free space (or inodes) there, or name another directory with --root"


class InstallVerificationError(InstallError):
    """The staged files differ from those in the artifact's manifest."""

    exit_code = ExitCode.INTEGRITY
    default_hint = "install again; if it fails again, check the target's disk and memory"


class RollbackFailedError(InstallError):
    """An install failed, and not all of its changes could be taken back."""

    default_hint = "remove the cache root and install again"


# --- groups --------------------------------------------------------------------------------------


class GroupError(MxArtifactsError):
    """A group did not install the artifact on all of its nodes."""

    default_hint = "run the group again on all of its members"


class GroupFailedError(GroupError):
    """A member failed, so no member keeps anything; the message names that member and the cause."""

    exit_code = ExitCode.GROUP_FAILED

    def __init__(self, message: str, *, hint: str | None = None, retryable: bool = True) -> None:
        super().__init__(message, hint=hint)
        self.retryable = retryable


class GroupInDoubtError(GroupError):
    """This node's roots are as before; other members may have kept what they installed."""

    exit_code = ExitCode.GROUP_IN_DOUBT
    retryable = True
    default_hint = (
        "run the group again on all of its members before an engine starts, or run `mx-artifact "
        "uninstall` on the nodes that installed it"
    )
