"""Takes a bundle's verified bytes as they arrive and writes its members, and never a whole tar."""

from __future__ import annotations

import threading

from mx_artifacts.bundle.scan import DEFAULT_LIMITS, BundleLimits, BundleScanner
from mx_artifacts.install.staging.tree_writer import TreeWriter
from mx_artifacts.runtime.threads import WorkStopped


class BundleSink:
    """One bundle on its way to a `TreeWriter`. Any thread; each byte comes once.

    The headers of members are among their bytes, so parts are read in their order; a thread
    with a later part waits for those before it. They are written side by side.
    """

    def __init__(
        self, bundle_bytes: int, writer: TreeWriter, limits: BundleLimits = DEFAULT_LIMITS
    ) -> None:
        self._scanner = BundleScanner(bundle_bytes, limits)
        self._writer = writer
        self._turn = threading.Condition()
        self._next = 0
        self._failed = False

    def write(self, offset: int, data: memoryview) -> None:
        """Take the bytes at `offset`; `data` may be used again when this returns.

        Raises:
            UnsafePathError, BundleError: the bytes are no bundle of regular files.
            WorkStopped: another part failed, or `stop` was called.
            OSError: a member cannot be written.
        """
        try:
            with self._turn:
                self._turn.wait_for(lambda: self._failed or self._next == offset)
                if self._failed:
                    raise WorkStopped
                pieces = list(self._scanner.feed(data))
                self._next += len(data)
                self._turn.notify_all()
            for piece in pieces:
                self._writer.write(piece)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Let every thread that waits here fail. Idempotent."""
        with self._turn:
            self._failed = True
            self._turn.notify_all()

    def finish(self) -> None:
        """Check that the whole bundle came.

        Raises:
            BundleError: it did not.
        """
        self._scanner.finish()
