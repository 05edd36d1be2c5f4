"""The report of a job of the demo: one line of JSON, which the demo's main process reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from mx_artifacts.errors import MxArtifactsError


@dataclass(frozen=True)
class JobResult:
    """The result of one run of a job, as counted by the compiler.

    Attributes:
        kind: cache kind, as on the command line.
        jobs: units that were requested from the compiler (Inductor: graphs; Triton: kernels).
        hits: jobs whose result came from the cache.
        misses: jobs that were compiled, or that cannot be cached.
        rebuilt: files that the run compiled, even if the compiler counted a hit.
        outside: cache files that were read from outside the job's own cache root.
        seconds: time of all jobs, from the first request to the last result, without imports [s].
        versions: versions of the tools that decide whether a cache fits.
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
        """Return the line that the job prints, without the line end."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_output(cls, output: str) -> JobResult:
        """Read the last line that a job printed. Compilers may have printed earlier lines.

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
