"""Every job of every real cache hits where it was moved to, or is refused with the reason.

`make test` plays a few cases of the light caches, `make test-kinds` all of all (docs/kinds.md).
"""

from __future__ import annotations

import pytest

from tests.kinds.bench import Bench
from tests.kinds.cases import Case
from tests.kinds.environments import missing
from tests.kinds.rows import Row, judge, skipped
from tests.support import other_user


def test_every_job_hits_or_is_refused(bench: Bench, case: Case, played: list[Row]) -> None:
    cache = bench.cache
    reason = missing(cache)
    if case.other_user:
        reason = reason or cache.separate_user or other_user.obstacle()
    if reason:
        played.append(skipped(cache, case, reason))
        pytest.skip(reason)
    bench.restore()
    row = judge(cache, case, bench.cold, case.play(bench))
    played.append(row)
    assert (row.silent, row.recompiled - row.refused <= 0) == (0, True), row
