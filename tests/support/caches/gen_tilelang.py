"""Fill or probe a real TileLang kernel cache; kernels are compiled for $ARCH, never launched.

Chosen by TILELANG_CACHE_DIR. A hit is a kernel that TileLang loaded from its disk cache. Arguments
and output: see this package.
"""
# mypy: disable-error-code="valid-type"
# TileLang's annotations are calls.

import os
import time

import tilelang
import tilelang.language as T
from contract import chosen_jobs, report
from tilelang.cache.kernel_cache import KernelCache

TARGET = {"kind": "cuda", "arch": os.environ.get("ARCH", "sm_90a")}
loaded: list[bool] = []
load_from_disk = KernelCache._load_kernel_from_disk


def load_and_note(self, key, *args, **kwargs):
    kernel = load_from_disk(self, key, *args, **kwargs)
    loaded.append(kernel is not None)
    return kernel


def matmul(size, bM, bN, bK=32, dtype="float16"):
    @T.prim_func
    def gemm(
        A: T.Tensor((size, size), dtype),
        B: T.Tensor((size, size), dtype),
        C: T.Tensor((size, size), dtype),
    ):
        with T.Kernel(T.ceildiv(size, bN), T.ceildiv(size, bM), threads=128) as (bx, by):
            a_tile = T.alloc_shared((bM, bK), dtype)
            b_tile = T.alloc_shared((bK, bN), dtype)
            sums = T.alloc_fragment((bM, bN), "float")
            T.clear(sums)
            for k in T.Pipelined(T.ceildiv(size, bK), num_stages=3):
                T.copy(A[by * bM, k * bK], a_tile)
                T.copy(B[k * bK, bx * bN], b_tile)
                T.gemm(a_tile, b_tile, sums)
            T.copy(sums, C[by * bM, bx * bN])

    return gemm


def scale(length, block, dtype="float32"):
    @T.prim_func
    def twice(A: T.Tensor((length,), dtype), B: T.Tensor((length,), dtype)):
        with T.Kernel(T.ceildiv(length, block), threads=block) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 2.0

    return twice


NORMAL = (
    *((scale, (1 << 16, block)) for block in (128, 256)),
    *((matmul, (1024, *tile)) for tile in ((64, 64), (128, 64), (128, 128))),
)
MORE = (
    *((scale, (1 << bits, 128)) for bits in range(17, 23)),
    *((matmul, (size, 64, 64)) for size in (512, 2048, 4096)),
)

KernelCache._load_kernel_from_disk = load_and_note
jobs = chosen_jobs(NORMAL, MORE)
began = time.time()
hits, errors = [], []
for make, arguments in jobs:
    del loaded[:]
    try:
        tilelang.compile(make(*arguments), target=TARGET, execution_backend="tvm_ffi")
        hits.append(loaded == [True])
    except Exception as error:
        errors.append(f"{make.__name__}{arguments}: {error!r}"[-400:])
report(
    jobs=len(jobs),
    hits=sum(hits),
    recompiled=hits.count(False),
    errors=errors,
    seconds=time.time() - began,
    tilelang=tilelang.__version__,
)
