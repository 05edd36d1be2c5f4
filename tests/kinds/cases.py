"""The ways in which a cache can arrive on a node, each played on a bench."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kinds.bench import Arrival, Bench, copy_tree

OLD_NS = 978_307_200_000_000_000
"""The first of January 2001, as tools give it that set times to a constant; Unix epoch [ns]."""


@dataclass(frozen=True)
class Outcome:
    """What the program found on the target (None: not run), and what the product said before.

    `named` counts, by reason, the entries that the product named as not installed or not usable.
    """

    probe: dict[str, Any] | None
    named: Counter[str]


@dataclass(frozen=True)
class Case:
    """One way to arrive. The filled cache lies at the bench's source, and nothing elsewhere."""

    name: str
    play: Callable[[Bench], Outcome]
    other_user: bool = False
    small: bool = False
    """Whether it is one of the few that `make test` plays."""


def _arrive(
    bench: Bench, place: Path, *args: str, case: str = "as made", as_other_user: bool = False
) -> Outcome:
    """Publish, take the source away, fetch into `place`, and run there."""
    model = bench.publish(case)
    bench.hide_source()
    arrival = bench.fetch(model, place, *args)
    said = {arrival.error: bench.cold["jobs"]} if arrival.error else _reasons(arrival)
    named: Counter[str] = Counter()
    for reason, count in said.items():
        named[_timeless(bench, reason)] += count
    probe = None if arrival.error else bench.run_program(place, as_other_user=as_other_user)
    return Outcome(probe, named)


def _reasons(arrival: Arrival) -> Counter[str]:
    """Count, by reason, the entries that either side named."""
    named = Counter(arrival.left_out)
    for root in arrival.roots:
        named.update({**root["unverified"], **root["dropped"], **root["unusable"]}.values())
    return named


def _timeless(bench: Bench, reason: str) -> str:
    """Return a reason without the places of this run, for a page that is kept."""
    for place, name in ((bench.elsewhere, "TARGET"), (bench.source, "SOURCE")):
        reason = reason.replace(str(place), name)
    return reason


def _same_root(bench: Bench) -> Outcome:
    return _arrive(bench, bench.source)


def _other_root(bench: Bench) -> Outcome:
    return _arrive(bench, bench.elsewhere)


def _other_user(bench: Bench) -> Outcome:
    return _arrive(bench, bench.elsewhere, as_other_user=True)


def _copied_without_times(bench: Bench) -> Outcome:
    untouched = bench.source.with_name("untouched")
    bench.source.rename(untouched)
    copy_tree(untouched, bench.source, keep="mode")
    untouched.rename(bench.source.with_name("copied-from"))
    return _arrive(bench, bench.source, case="times of now")


def _times_of_2001(bench: Bench) -> Outcome:
    for path in bench.source.rglob("*"):
        os.utime(path, ns=(OLD_NS, OLD_NS))
    return _arrive(bench, bench.source, case="times of 2001")


def _source_writing(bench: Bench) -> Outcome:
    with bench.writing():
        bench.publish("writing")
    return _arrive(bench, bench.elsewhere, case="writing")


def _partly_filled(bench: Bench) -> Outcome:
    there = bench.run_program(bench.elsewhere, "--some")
    assert (there["errors"], there["hits"]) == ([], 0), there
    return _arrive(bench, bench.elsewhere)


def _stale_copy(bench: Bench, *args: str) -> Outcome:
    copy_tree(bench.master, bench.elsewhere)
    return _arrive(bench, bench.elsewhere, *args)


CASES = (
    Case("same root", _same_root, small=True),
    Case("other root", _other_root, small=True),
    Case("other user", _other_user, other_user=True),
    Case("mtimes lost: of now", _copied_without_times),
    Case("mtimes lost: of 2001", _times_of_2001),
    Case("source writing", _source_writing),
    Case("target partly filled", _partly_filled),
    Case("stale copy kept", _stale_copy, small=True),
    Case("stale copy replaced", lambda bench: _stale_copy(bench, "--replace")),
)
