"""Fill or probe what a Triton cache has beside kernels: the launcher's library, autotune results.

Chosen by TRITON_CACHE_DIR; gcc builds the library (Triton's own driver.c) against the stand-in in
LIBCUDA_STUB. Timings are made up, as there is no GPU to measure on; Triton keeps and finds them.
"""

import time

import triton
import triton.backends.nvidia.driver as nvidia
import triton.runtime.build
import triton_kernels as kernels
from contract import chosen_jobs, report
from libcuda_stub import load_libcuda
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 512, 1024)]


class Target:
    """In the place of a GPU's driver, which is only asked for its target."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_benchmarker(self):
        return lambda *_args, **_options: [0.1, 0.1, 0.1]


def build_launcher_library(_job):
    """Load the library; return whether it had to be built."""
    built = []
    build = triton.runtime.build._build

    def build_and_tell(name, *arguments, **options):
        built.append(name)
        return build(name, *arguments, **options)

    triton.runtime.build._build = build_and_tell
    try:
        nvidia.CudaUtils()
    finally:
        triton.runtime.build._build = build
    return bool(built)


def tune(job):
    """Find the best of `CONFIGS` for a size; return whether that had to be measured."""
    measured = []
    tuner = triton.autotune(configs=CONFIGS, key=["n"])(kernels.vec_add)

    def measure():
        measured.append(job)
        tuner.configs_timings = {c: [0.01 * (n + 1)] * 3 for n, c in enumerate(CONFIGS)}

    tuner.check_disk_cache((job, "torch.float16"), CONFIGS, measure)
    return bool(measured)


load_libcuda()
driver.set_active(Target())
jobs = chosen_jobs(
    [("library", build_launcher_library), (1 << 20, tune), (1 << 21, tune), (1 << 22, tune)],
    [(size, tune) for size in range(1, 100_000)],  # as many as it takes to be stopped
)
hits, errors = 0, []
began = time.time()
for job, run in jobs:
    try:
        hits += not run(job)
    except Exception as error:
        errors.append(f"{job}: {error!r}"[:300])
report(
    jobs=len(jobs),
    hits=hits,
    recompiled=len(jobs) - hits - len(errors),
    errors=errors,
    seconds=time.time() - began,
)
