"""This process as a member of a group: it installs only if all members install.

A member asks the central server twice (core/groups.py). After it has staged: may it move its
entries in? After it has moved: may they stay? If anything fails on one node before the second
answer, all members learn it. docs/groups.md describes the remaining case: a member that cannot
learn the answer.
"""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol

from mx_artifacts import settings
from mx_artifacts.core.groups import PRESENCE_SECONDS, MemberReport, Phase, Progress, Round
from mx_artifacts.errors import (
    BackendUnavailableError,
    ConfigurationError,
    ConflictError,
    GroupError,
    GroupFailedError,
    GroupInDoubtError,
    InstallError,
    MxArtifactsError,
    RecordNotFoundError,
    RollbackFailedError,
)
from mx_artifacts.install.base import RootReport
from mx_artifacts.observability.catalogue import (
    GroupCommitted,
    GroupDone,
    GroupJoined,
    GroupWaiting,
)
from mx_artifacts.observability.events import EventSink
from mx_artifacts.runtime.clock import Clock
from mx_artifacts.wire.groups import GroupAnswer

_POLL_SECONDS = 0.5
_BEATS = 5
"""Signs of life within the time after which a silent member is given up."""


@dataclass(frozen=True)
class GroupWanted:
    """The group in which to install. With size 1 there is no group, and no server is asked.

    `member_id` is unique among the `size` members. `timeout_seconds` is how long a member that has
    staged waits for the others.
    """

    name: str
    size: int
    member_id: str
    timeout_seconds: float = 600.0


def member_id_here(*, node_rank: int | None = None, worker_rank: int | None = None) -> str:
    """Return a name for this process in a group: POD_NAME, else the host's name, and the ranks."""
    parts = [settings.POD_NAME.read() or socket.gethostname()]
    parts += [f"node{node_rank}"] if node_rank is not None else []
    parts += [f"worker{worker_rank}"] if worker_rank is not None else []
    return ".".join(parts)


class GroupClient(Protocol):
    """What a member needs of the central server; `CentralClient` has it."""

    def report_to_group(self, report: MemberReport) -> GroupAnswer: ...


class GroupMember:
    """An `Agreement` among the members. Use it as a context manager around all of the work.

    Events: `group.joined`, `group.waiting` (reason), `group.commit`, `group.done`.
    """

    def __init__(
        self,
        client: GroupClient,
        wanted: GroupWanted,
        *,
        kind_name: str,
        join_seconds: float,
        clock: Clock,
        events: EventSink,
    ) -> None:
        """Ask nothing yet.

        Args:
            kind_name: members of one group that install several kinds agree on each.
            join_seconds: how long to wait for a central server that does not answer yet.
        """
        self._client = client
        self._wanted = wanted
        self._join_seconds = join_seconds
        self._clock = clock
        self._events = events
        self._report = MemberReport(
            group=f"{wanted.name}:{kind_name}",
            size=wanted.size,
            member_id=wanted.member_id,
            instance_id=uuid.uuid4().hex,
        )
        self._presence_seconds = PRESENCE_SECONDS
        self._done = False
        self._interrupt: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="mx-group", daemon=True)

    # --- coming and going ------------------------------------------------------------------------

    def __enter__(self) -> GroupMember:
        """Join.

        Raises:
            ConfigurationError: the group has another size, all its members, or this one.
            GroupFailedError: it failed before this member came.
            BackendUnavailableError, RemoteError: the central server does not answer properly.
        """
        answer = self._join()
        self._presence_seconds = answer.presence_seconds
        self._report = replace(self._report, round_id=answer.round.round_id)
        self._events(GroupJoined(self._report.group, self._wanted.member_id, answer.round.round_id))
        self._check(answer.round)
        self._thread.start()
        return self

    def _join(self) -> GroupAnswer:
        started = self._clock.monotonic()
        while True:
            waited = self._clock.monotonic() - started
            try:
                return self._client.report_to_group(self._report)
            except BackendUnavailableError:
                if waited >= self._join_seconds:
                    raise
            except ConflictError as error:
                # This member's former process, if it was killed; the server gives it up soon.
                if waited >= 2 * PRESENCE_SECONDS:
                    raise ConfigurationError(
                        f"{self._name} already has a running member {self._wanted.member_id}",
                        hint="give each member a different id with --group-member",
                    ) from error
            self._clock.sleep(_POLL_SECONDS)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Report a failure to the other members, and raise it as an error of the group."""
        self._stopping.set()
        self._thread.join()
        if error is None:
            if self._interrupt is not None:  # held back until the install was complete
                raise self._interrupt
            return
        if isinstance(error, GroupError):
            return
        if self._done:
            raise GroupInDoubtError(
                f"{self._name} was installed by the other members, but not by this one: "
                f"{_said(error)}"
            ) from error
        with suppress(MxArtifactsError):
            self._withdraw(_said(error))
        if isinstance(error, MxArtifactsError) and not isinstance(error, RollbackFailedError):
            raise GroupFailedError(
                f"{self._name} installs nothing: member {self._wanted.member_id}, on this node, "
                f"failed: {error}",
                hint=error.hint(),
                retryable=error.retryable,
            ) from error

    # --- the two questions -----------------------------------------------------------------------

    def before_commit(self, artifact_id: str) -> None:
        """Wait until all have staged; members may have different artifacts.

        Raises:
            GroupFailedError: a member failed or did not come, or the server cannot be asked.
        """
        self._report = replace(self._report, progress=Progress.STAGED, artifact_id=artifact_id)
        self._wait_for(Phase.COMMIT)
        self._events(GroupCommitted(self._report.group))

    def before_receipt(self, roots: Sequence[RootReport]) -> None:
        """Wait until all have moved.

        Raises:
            InstallError: a part of the artifact was dropped, or what is here is not usable.
            GroupFailedError: a member failed.
            GroupInDoubtError: the server cannot be asked whether all have.
        """
        for root in roots:
            for entry, reason in {**root.dropped, **root.unusable}.items():
                raise InstallError(
                    f"{entry} in {root.root} cannot be used, and a group installs a whole "
                    f"artifact or nothing: {reason}",
                    hint="replace it by the fetched entry with --replace; if the cache need not "
                    "be on all nodes, install it without --group",
                )
        held = tuple(sorted(root.name for root in roots if root.installed or root.kept))
        self._report = replace(self._report, progress=Progress.MOVED, roots=held)
        try:
            self._wait_for(Phase.DONE)
        except GroupError:
            raise
        except BaseException as interrupt:
            try:
                self._give_up(_said(interrupt))
            except GroupFailedError:
                raise interrupt from None
            self._interrupt = interrupt
        self._done = True
        self._events(GroupDone(self._report.group))

    def _wait_for(self, phase: Phase) -> None:
        started = heard = self._clock.monotonic()
        said, lacking = "", "an answer"
        while True:
            now = self._clock.monotonic()
            try:
                reached = self._client.report_to_group(self._report).round
                heard = now
            except RecordNotFoundError as error:
                raise self._lost(error) from error
            except MxArtifactsError as error:
                if now - heard >= self._presence_seconds:  # the server has given us up by now
                    raise self._lost(error) from error
            else:
                if self._check(reached) >= phase:
                    return
                lacking = reached.lacking(self._report.progress)
                if said != reached.describe():
                    said = reached.describe()
                    self._events(GroupWaiting(self._report.group, f"{self._name}: {said}"))
            if now - started >= self._wanted.timeout_seconds:
                self._give_up(f"waited {self._wanted.timeout_seconds:g} s for {lacking}")
                return
            self._clock.sleep(_POLL_SECONDS)

    def _check(self, round_: Round) -> Phase:
        if round_.phase is Phase.ABORTED:
            # Who gave up waiting is not to blame, and knows itself who it is.
            ours = f"member {self._wanted.member_id} failed: "
            raise self._failed(round_.reason.removeprefix(ours))
        return round_.phase

    # --- failure ---------------------------------------------------------------------------------

    def _give_up(self, reason: str) -> None:
        """Raise an error, unless all members have moved; then return, and keep what is installed.

        Raises:
            GroupFailedError: with this reason, or with the reason for which the round failed
                earlier.
            GroupInDoubtError: this member has moved and cannot reach the server.
        """
        try:
            round_ = self._withdraw(reason)
        except MxArtifactsError as error:
            raise self._lost(error) from error
        self._check(round_)

    def _withdraw(self, reason: str) -> Round:
        failed = replace(self._report, progress=Progress.FAILED, reason=reason)
        return self._client.report_to_group(failed).round

    def _failed(self, reason: str) -> GroupFailedError:
        moved = self._report.progress is Progress.MOVED
        back = "; this member takes back what it has moved" if moved else ""
        return GroupFailedError(f"{self._name} installs nothing: {reason}{back}")

    def _lost(self, error: MxArtifactsError) -> GroupError:
        # Without this member's word that it has moved nobody keeps anything.
        if self._report.progress is not Progress.MOVED:
            return self._failed(f"this member cannot reach the central server: {error}")
        return GroupInDoubtError(
            f"{self._name} may be installed on other nodes, but the roots of this node are as "
            f"they were before, because this member cannot reach the central server: {error}"
        )

    # --- small things ----------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"group {self._report.group}"

    def _beat(self) -> None:
        while not self._stopping.wait(self._presence_seconds / _BEATS):
            # A sign of life only: what it is answered is asked for again where it matters.
            with suppress(MxArtifactsError):
                self._client.report_to_group(self._report)


def _said(error: BaseException) -> str:
    return str(error) if isinstance(error, Exception) else "interrupted"
