"""Artifacts that this node must not fetch: one small file for each, in the state directory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from mx_artifacts.errors import ConfigurationError, UnsafePathError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.files import as_json
from mx_artifacts.filesystem.json_documents import field_of, read_document
from mx_artifacts.filesystem.lock import LockFile, locked
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.install.receipts.receipt import format_time
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock

_ARTIFACT_ID = re.compile(r"[0-9a-f]{64}")
_LOCK_TIMEOUT_SECONDS = 10.0
_MAX_BYTES = 1024 * 1024
"""Maximum size of a file of the quarantine [bytes]: an id, a time and a reason."""
NO_REASON = "no reason was given"


@dataclass(frozen=True)
class QuarantinedArtifact:
    """An artifact in quarantine; `since` is UTC, ISO 8601."""

    artifact_id: str
    reason: str
    since: str


@dataclass(frozen=True)
class Quarantine:
    """The quarantine below a state directory, which need not exist. Any process may change it."""

    state_directory: Path

    def add(
        self, artifact_id: str, reason: str, clock: Clock = SYSTEM_CLOCK
    ) -> QuarantinedArtifact:
        """Put an artifact in; once more is fine and sets a new reason.

        Raises:
            ConfigurationError: no artifact id, or the state directory cannot be written.
        """
        added = QuarantinedArtifact(checked_id(artifact_id), reason, format_time(clock.now()))
        with self._translated("written"):
            self._directory.mkdir(parents=True, exist_ok=True)
            with (
                open_directory(self._directory) as directory,
                locked([LockFile(directory)], _LOCK_TIMEOUT_SECONDS, clock),
            ):
                directory.write(_name(artifact_id), as_json(asdict(added)))
        return added

    def remove(self, artifact_id: str) -> bool:
        """Let an artifact out; False when it was not in. Raises ConfigurationError."""
        with self._translated("written"):
            try:
                name = _name(checked_id(artifact_id))
                with open_directory(self._directory) as directory:
                    directory.remove(name)
            except FileNotFoundError:
                return False
            return True

    def artifacts(self) -> dict[str, QuarantinedArtifact]:
        """Return what is in, by artifact id.

        Raises:
            ConfigurationError: it cannot be read. That is not the same as nothing: what crashed
                an engine would come back.
        """
        with self._translated("read"):
            try:
                directory = open_directory(self._directory)
            except FileNotFoundError:
                return {}
            with directory:
                names = [name for name in directory.names() if name.endswith(".json")]
                entries = [_read(directory, name) for name in names]
            return {entry.artifact_id: entry for entry in entries}

    def refusals(self) -> dict[str, str]:
        """Map the ids of artifacts that are in to why they are not taken. Raises as `artifacts`."""
        return {
            artifact_id: f"artifact {artifact_id} is quarantined on this node, because "
            f"{entry.reason} (see `mx-artifact quarantine --list`)"
            for artifact_id, entry in self.artifacts().items()
        }

    @property
    def _directory(self) -> Path:
        return self.state_directory / "quarantine"

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, UnsafePathError) as error:
            raise ConfigurationError(
                f"the quarantine in {self._directory} cannot be {done}: {error}",
                hint="set MX_STATE_DIR to a directory that this user can write and that outlives "
                "the container",
            ) from error


def checked_id(text: str) -> str:
    """Return `text` when it is an artifact id. Raises ConfigurationError."""
    if not _ARTIFACT_ID.fullmatch(text):
        raise ConfigurationError(
            f"{text!r} is not an artifact id, which has 64 hex characters",
            hint="the receipt and `mx-artifact sources show` have the artifact id",
        )
    return text


def _name(artifact_id: str) -> str:
    return f"{artifact_id}.json"


def _read(directory: Directory, name: str) -> QuarantinedArtifact:
    document = read_document(directory, name, _MAX_BYTES)
    return QuarantinedArtifact(
        artifact_id=field_of(document, "artifact_id", str),
        reason=field_of(document, "reason", str),
        since=field_of(document, "since", str),
    )
