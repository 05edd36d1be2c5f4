"""Runs methods in interleaved rounds, and makes medians and ratios of what they took."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Samples = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Method:
    """One way to do something.

    `run` does it and returns the figures that it measured, by name ([s] or [bytes]); it is called
    once a round. Whatever it makes ready, checks and removes outside its own timing is not counted.
    """

    name: str
    run: Callable[[], Mapping[str, float]]


def interleaved(
    methods: Sequence[Method], rounds: int, told: Callable[[str], None]
) -> dict[str, list[float]]:
    """Run all methods `rounds` times; return each figure's samples, one a round, in order.

    Every round runs every method, so that what else the machine does meets all of them, and starts
    with another one. `told` hears of each run.
    """
    samples: dict[str, list[float]] = {}
    for number in range(rounds):
        first = number % len(methods)
        for method in (*methods[first:], *methods[:first]):
            measured = method.run()
            told(f"round {number + 1}/{rounds}: {_shown(measured)}")
            for name, value in measured.items():
                samples.setdefault(name, []).append(value)
    return samples


def _shown(measured: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in measured.items())


def summary(samples: Samples) -> dict[str, Any]:
    """Return the median and all samples of each figure."""
    return {
        name: {"median": statistics.median(values), "samples": list(values)}
        for name, values in samples.items()
    }


def median_ratio(samples: Samples, numerator: str, denominator: str) -> float | None:
    """Return the median over the rounds of two figures' ratio; None where one was not measured.

    Each round's two samples are of the same minute, so their ratio holds on a machine whose speed
    changes from round to round.
    """
    ratios = round_ratios(samples, numerator, denominator)
    return statistics.median(ratios) if ratios else None


def round_ratios(samples: Samples, numerator: str, denominator: str) -> list[float]:
    """Return two figures' ratio in each round; empty where one was not measured."""
    above, below = samples.get(numerator), samples.get(denominator)
    if not above or not below:
        return []
    return [a / b for a, b in zip(above, below, strict=True)]
