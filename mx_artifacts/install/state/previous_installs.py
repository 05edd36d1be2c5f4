"""What was installed into some roots before, and which of it is still as installed.

It is told by receipts and file status, which takes a moment where there are ten thousand files; so
they are looked at in a thread of their own, while a source is asked what it has, and by no more
threads, for which its answers would wait.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import compress
from pathlib import Path
from threading import Thread

from mx_artifacts.install.base import RootInstall
from mx_artifacts.install.receipts.lookup import find_receipts, receipts_of_root
from mx_artifacts.install.receipts.receipt import InstalledEntry, RootReceipt
from mx_artifacts.install.state.boot import are_as_installed
from mx_artifacts.runtime.clock import SYSTEM_CLOCK
from mx_artifacts.runtime.gc_pause import gc_paused


class PreviousInstalls:
    """Looks at the roots of `installs`, the primary one first, from now on."""

    def __init__(self, installs: Sequence[RootInstall]) -> None:
        self._found: Future[Mapping[Path, _PreviousInstall]] = Future()
        Thread(target=self._look, args=(installs,), name="mx-earlier", daemon=True).start()

    def receipts(self, root: Path) -> Sequence[RootReceipt]:
        """Return what receipts say of `root`, newest first; waits for them. Raises OSError."""
        return self._found.result()[root].receipts

    def unchanged_entries(self, root: Path) -> Sequence[InstalledEntry]:
        """Return the entries of `root` that were as the newest receipt which has them says."""
        return self._found.result()[root].unchanged

    def looked_at(self, root: Path) -> float:
        """Return from when that is, by `time.monotonic`."""
        return self._found.result()[root].looked_at

    @gc_paused()
    def _look(self, installs: Sequence[RootInstall]) -> None:
        try:
            found = find_receipts(installs[0].root) if installs else []
            self._found.set_result(
                {
                    install.root: _PreviousInstall(
                        receipts_of_root(found, Path(os.path.realpath(install.root))),
                        install.touched_on_hit,
                    )
                    for install in installs
                }
            )
        except BaseException as error:
            self._found.set_exception(error)


class _PreviousInstall:
    """What was in one root before."""

    def __init__(self, receipts: Sequence[RootReceipt], touched: tuple[str, ...]) -> None:
        self.receipts = receipts
        self.looked_at = SYSTEM_CLOCK.monotonic()
        self.unchanged: list[InstalledEntry] = []
        seen: set[str] = set()  # of whom a newer receipt has spoken
        for receipt in receipts:
            entries = [entry for entry in receipt.installed if entry.entry not in seen]
            are_unchanged = are_as_installed(receipt, entries, touched, in_background=True)
            self.unchanged += compress(entries, are_unchanged)
            seen.update(entry.entry for entry in entries)
