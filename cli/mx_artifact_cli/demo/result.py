"""What a job of the demo reports: one JSON line that the orchestrating process reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from mx_artifacts.errors import MxArtifactsError


@dataclass(frozen=True)
class JobResult:
    """One run of a job, counted by the compiler itself.

    Attributes:
        kind: cache kind, as on the command line.
        jobs: units that the compiler was asked for (Inductor: graphs; Triton: kernels).
        hits: of these, taken from the cache.
        misses: of these, compiled anew, or not cacheable.
        rebuilt: files the run compiled although the compiler may have counted a hit.
        outside: cache files read from elsewhere than the job's own cache root.
        seconds: for all jobs, from the first request to the last result; imports not counted.
        versions: of the tools that decide whether a cache fits.
        details: further counters, for the JSON report.
    """

    kind: str
    jobs: int
    hits: int
    misses: int
    rebuilt: int
    outside: int
    seconds: float
    versions: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, int] = field(default_factory=dict)

    def to_line(self) -> str:
        """Return the job's line of standard output, without its newline."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_output(cls, output: str) -> JobResult:
        """Read the last line that a job printed; compilers may have printed before it.

        Raises:
            MxArtifactsError: the last line is not a result.
        """
        lines = output.strip().splitlines()
        try:
            return cls(**json.loads(lines[-1]))
        except (IndexError, TypeError, ValueError):
            last = lines[-1][:200] if lines else ""
            raise MxArtifactsError(
                f"the job printed no result; its last line is {last!r}"
            ) from None
