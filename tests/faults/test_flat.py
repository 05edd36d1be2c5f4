"""Fetches in a row leave open files, threads and memory as they were, on both sides.

`python -m benchmarks.flat` does a thousand of them.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.flat import Held, watch

RSS_MIB = 12.0
"""What the allocators of two languages may keep of fifty fetches."""


def test_fifty_fetches_leave_nothing(tmp_path: Path) -> None:
    samples = watch(tmp_path, fetches=50, mib=4, files=40, samples=4)
    first, last = samples[0], samples[-1]
    for before, after in ((first.source, last.source), (first.target, last.target)):
        assert isinstance(before, Held)
        assert after.files <= before.files, samples
        assert after.threads <= before.threads + 4, samples
        assert after.rss_mib <= before.rss_mib + RSS_MIB, samples
