"""Errors for verbs that did their work only in part, or found something that a script must see.

The library does not raise these errors; it returns reports. `main` exits with their codes, as with
those of other errors.

    MxArtifactsError
      KindsFailedError
      EntriesKeptError
      NotUsedError
      NodeUnfitError
"""

from __future__ import annotations

from collections.abc import Mapping

from mx_artifacts.errors import ExitCode, MxArtifactsError


class KindsFailedError(MxArtifactsError):
    """Some or all of several kinds failed; `failures` maps a kind's name to its error."""

    exit_code = ExitCode.PARTIAL

    def __init__(self, failures: Mapping[str, MxArtifactsError], *, total: int) -> None:
        super().__init__(f"{len(failures)} of {total} kinds failed: {', '.join(failures)}")
        self.failures = dict(failures)
        self.retryable = all(cause.retryable for cause in failures.values())
        if len(failures) == total:  # nothing was done, so the first cause decides
            self.exit_code = next(iter(failures.values())).exit_code

    def hint(self) -> str:
        """Return the first cause's hint."""
        return next(iter(self.failures.values())).hint()


class EntriesKeptError(MxArtifactsError):
    """Entries that changed since they were installed were kept."""

    exit_code = ExitCode.PARTIAL
    default_hint = "remove them too with `mx-artifact uninstall --force`"


class NotUsedError(MxArtifactsError):
    """The engine did not use an installed cache, compiled in addition to it, or will have to."""

    exit_code = ExitCode.PARTIAL
    default_hint = "see the reasons in the output of the command"


class NodeUnfitError(MxArtifactsError):
    """A check of `mx-artifact doctor` failed; the first failed check decides the exit code."""

    default_hint = "see the failed checks and their next steps in the output of the command"

    def __init__(
        self, message: str, *, exit_code: ExitCode | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        if exit_code is not None:
            self.exit_code = exit_code
