"""Programs that fill real caches without a GPU, and, run again, return whether they hit.

They are run as programs in fresh processes, never imported by a test. All keep one contract
(tests/kinds/caches.py lists them):

- no argument: the normal set of jobs. --some: a part of it. --more: jobs that the normal set has
  not, as of an engine that goes on compiling. --small: few jobs, with or without the others; only
  where `make test` runs the program too.
- The last line of stdout is one JSON object with `jobs`, `hits`, `recompiled` (jobs that compiled
  anything), `errors` (a list of texts) and `seconds` (of the jobs, without imports). More keys are
  allowed.
"""
