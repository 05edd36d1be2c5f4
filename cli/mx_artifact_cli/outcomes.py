"""How a verb may end that did its work: in part, or with a finding that a script should see.

The library does not raise these; it returns reports. `main` ends with their codes as with those of
errors.

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
    """An installed cache was not hit, the engine compiled beside it, or it cannot but do so."""

    exit_code = ExitCode.PARTIAL
    default_hint = "see the reasons that the command printed"


class NodeUnfitError(MxArtifactsError):
    """A check of `mx-artifact doctor` failed; the first that did decides the exit code."""

    default_hint = "see which checks failed, and their next steps, in what the command printed"

    def __init__(
        self, message: str, *, exit_code: ExitCode | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        if exit_code is not None:
            self.exit_code = exit_code
