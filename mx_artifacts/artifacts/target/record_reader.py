"""Reads the records behind a listing, and passes over those that cannot be read."""

from __future__ import annotations

from mx_artifacts.artifacts.target.suitability import label_of
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.sources import SourceRef, StoredWorker
from mx_artifacts.errors import MxArtifactsError

MAX_RECORDS = 2048
"""Maximum number of records that one discovery reads, some seconds' worth. A fleet has as many
sources of one identity at the most, of which the first ones that fit are taken."""
MAX_FAILURES_IN_A_ROW = 3
"""Maximum number of records that fail one after the other. It is then the central server that does
not answer: each further one might cost the time-out of a call."""


class RecordReader:
    """Reads records for one discovery. One thread.

    `failures` has the errors of those that could not be read, by source and worker id.
    """

    def __init__(self, client: CentralClient) -> None:
        self._client = client
        self._failed_in_a_row = 0
        self._left = MAX_RECORDS
        self.failures: dict[str, MxArtifactsError] = {}

    @property
    def may_read(self) -> bool:
        """Whether fewer than MAX_RECORDS were read."""
        return self._left > 0

    def read(self, ref: SourceRef) -> StoredWorker | None:
        """Return a record; None where it was removed meanwhile, or could not be read.

        Raises:
            MxArtifactsError: MAX_FAILURES_IN_A_ROW calls have failed; that of the last one.
        """
        self._left -= 1
        try:
            stored = self._client.get_metadata(ref.mx_source_id, ref.worker_id)
        except MxArtifactsError as error:
            self.failures[label_of(ref)] = error
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= MAX_FAILURES_IN_A_ROW:
                raise
            return None
        self._failed_in_a_row = 0
        return stored
