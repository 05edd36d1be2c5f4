from __future__ import annotations

import logging
import random

import pytest

from mx_artifacts.core.sources import SourceRef
from mx_artifacts.transfer.select import ordering

REFS = [SourceRef("3327fe19f6fa4e35", f"worker-{n}", "model", 0) for n in range(8)]


def _order(selector: str, target: str = "me", seed: int = 1, refs: list[SourceRef] = REFS):
    return ordering(selector, random.Random(seed), target)(refs)


def test_random_keeps_all_and_follows_the_generator() -> None:
    assert sorted(_order("random"), key=REFS.index) == REFS
    assert _order("random", seed=1) == _order("random", seed=1)
    assert len({tuple(r.worker_id for r in _order("random", seed=s)) for s in range(5)}) > 1


def test_rendezvous_is_stable_and_differs_between_targets() -> None:
    first = _order("rendezvous_hash", seed=1)
    assert first == _order("rendezvous_hash", seed=2, refs=REFS[::-1])
    assert len({_order("rendezvous_hash", target=str(t))[0].worker_id for t in range(20)}) > 1
    without = [ref for ref in REFS if ref is not first[3]]
    assert _order("rendezvous_hash", refs=without) == [r for r in first if r is not first[3]]


def test_an_unknown_name_is_random_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert _order("fastest", seed=3) == _order("random", seed=3)
    assert "fastest" in caplog.text


def test_no_candidates_is_no_error() -> None:
    assert _order("random", refs=[]) == _order("rendezvous_hash", refs=[]) == []
