"""Compile real Triton kernels for a named GPU architecture; no GPU is needed.

usage: python -m mx_artifact_cli.demo.triton_job ARCH      (ARCH as in sm90)

The cache is in the directory TRITON_CACHE_DIR. The job prints one `JobResult` line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from mx_artifact_cli.demo import triton_kernels as kernels
from mx_artifact_cli.demo.result import JobResult

WARP_SIZE = 32
"""Number of threads of a warp, on every NVIDIA architecture."""


class Counters:
    """Counts hits and misses. Triton calls it once for every kernel."""

    def __init__(self, root: Path) -> None:
        self.hits = 0
        self.misses = 0
        self.outside = 0
        self._root = root

    def __call__(self, *, metadata_group: Mapping[str, str], cache_hit: bool, **_: Any) -> None:
        self.hits += cache_hit
        self.misses += not cache_hit
        self.outside += sum(
            not Path(path).is_relative_to(self._root) for path in metadata_group.values()
        )


def sources() -> Iterator[tuple[ASTSource, dict[str, int]]]:
    """Yield each kernel, specialised as for a launch, with its compile options."""
    for dtype in ("*fp16", "*bf16"):
        row = {"x_ptr": dtype, "out_ptr": dtype, "stride": "i32", "width": "i32"}
        flat = {"x_ptr": dtype, "gate_ptr": dtype, "out_ptr": dtype, "count": "i32"}
        norm = {**row, "weight_ptr": dtype, "epsilon": "fp32"}
        yield source(kernels.gated_silu, flat, BLOCK=1024), {"num_warps": 4}
        yield source(kernels.rms_norm, norm, BLOCK=2048), {"num_warps": 4}
        yield source(kernels.softmax_rows, row, BLOCK=2048), {"num_warps": 4}
        product = {"a_ptr": dtype, "b_ptr": dtype, "c_ptr": dtype}
        product |= dict.fromkeys(("m", "n", "k", "a_stride", "b_stride", "c_stride"), "i32")
        for m, n, k, warps in ((64, 64, 32, 4), (64, 128, 64, 4), (128, 128, 64, 4)):
            options = {"num_warps": warps, "num_stages": 3}
            tile = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
            yield source(kernels.matmul, product, **tile), options


def source(kernel: Any, types: Mapping[str, str], **constants: int) -> ASTSource:
    """Return the kernel with its signature; pointers are 16-byte aligned, as those of torch."""
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    alignment = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*")
    }
    return ASTSource(kernel, signature, constants, alignment)


def main() -> None:
    target = GPUTarget("cuda", int(sys.argv[1].removeprefix("sm")), WARP_SIZE)
    root = Path(triton.knobs.cache.dir)
    counters = Counters(root)
    triton.knobs.compilation.listener = counters
    before = set(root.glob("*/*.cubin"))
    started = time.monotonic()
    for kernel, options in sources():
        triton.compile(kernel, target=target, options=options)
    seconds = time.monotonic() - started
    result = JobResult(
        kind="triton",
        jobs=counters.hits + counters.misses,
        hits=counters.hits,
        misses=counters.misses,
        rebuilt=len(set(root.glob("*/*.cubin")) - before),
        outside=counters.outside,
        seconds=round(seconds, 3),
        versions={"triton": triton.__version__, "arch": sys.argv[1]},
    )
    print(result.to_line())


if __name__ == "__main__":
    main()
