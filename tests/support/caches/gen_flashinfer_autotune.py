"""Write or load FlashInfer's autotune files, at the places that vLLM gives them.

VLLM_CACHE_ROOT has the root's parent; FLASHINFER_WORKSPACE_BASE and FLASHINFER_CUDA_ARCH_LIST must
be set too. The real AutoTuner writes and loads the files; what it would measure on a GPU is made
up. A hit is a file that its load_configs takes, with every entry.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import flashinfer
from cache_jobs import Job, run_jobs
from flashinfer.autotuner import AutoTuner

OPERATIONS = {"trtllm::fused_moe::gemm1": 24, "fp4_gemm": 40, "mxfp8_gemm": 16}
TUNED = {
    str((name, "MoERunner", ((1 << number, 7168), (256, 2048)), ())): ("MoERunner", number % 7)
    for name, count in OPERATIONS.items()
    for number in range(count)
}
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
        tuner._file_configs.update(TUNED)
        path.parent.mkdir(parents=True, exist_ok=True)
        tuner.save_configs(str(path))
        return what

    return job


run_jobs(
    {f"rank{rank}": file_of(rank) for rank in range(2)},
    some=["rank0"],
    more={f"other{number}": file_of(0, f"other{number}") for number in range(200)},
)
