"""What the programs here have in common: which jobs an argument means, and the line they print."""

import json
import sys


def chosen_jobs(normal, more, small=()):
    """Return the jobs that the command line asks for: see this package's docstring."""
    sets = {"": normal, "--some": normal[: len(normal) // 2], "--more": more, "--small": small}
    [argument] = sys.argv[1:] or [""]
    return list(sets[argument])


def report(*, jobs, hits, recompiled, errors, seconds, **more):
    """Print the result as the last line of stdout, numbers of jobs and their seconds."""
    counts = {"jobs": jobs, "hits": hits, "recompiled": recompiled}
    print(json.dumps({**counts, "errors": errors, "seconds": round(seconds, 2), **more}))
