"""Write or load FlashInfer's autotune files, at the places that vLLM gives them.

VLLM_CACHE_ROOT has the root's parent. The real AutoTuner writes and loads the files; what it would
measure on a GPU is made up. A hit is a file that its load_configs takes, with every entry. Beside
them is one CuTe kernel, as gen_flashinfer_cutedsl.py makes it, for FlashInfer's primary root.
"""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path

import flashinfer
from cache_jobs import Job, run_jobs
from flashinfer.autotuner import AutoTuner
from flashinfer_kernels import kernel  # the stand-in of the driver comes with it

OPERATIONS = {"trtllm::fused_moe::gemm1": 24, "fp4_gemm": 40, "mxfp8_gemm": 16}
TUNED = {
    str((name, "MoERunner", ((1 << number, 7168), (256, 2048)), ())): ("MoERunner", number % 7)
    for name, count in OPERATIONS.items()
    for number in range(count)
}
TUNING_SECONDS = 0.1
"""A real one takes minutes."""
ROOT = Path(os.environ["VLLM_CACHE_ROOT"]) / "flashinfer_autotune_cache"


def file_of(rank: int, engine: str = "engine") -> Job:
    directory = ROOT / flashinfer.__version__ / "90a" / sha256(engine.encode()).hexdigest()
    path = directory / f"autotune_configs_dp0_rank{rank}.json"

    def job() -> str:
        tuner = AutoTuner.get()
        tuner._file_configs.clear()
        what = f"{path.name} is missing"
        if path.exists():
            if tuner.load_configs(str(path)) and tuner._file_configs == TUNED:
                return ""
            what = f"{path.name} was not taken"
            tuner._file_configs.clear()
        time.sleep(TUNING_SECONDS)
        tuner._file_configs.update(TUNED)
        path.parent.mkdir(parents=True, exist_ok=True)
        tuner.save_configs(str(path))
        return what

    return job


run_jobs(
    {"rank0": file_of(0), "rank1": file_of(1), "kernel": kernel(2)},
    {f"engine{number}": file_of(0, f"engine{number}") for number in range(300)},
)
