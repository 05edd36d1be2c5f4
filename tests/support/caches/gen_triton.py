"""Fill or probe a real Triton cache; kernels are compiled for $ARCH (90), never launched.

Chosen by TRITON_CACHE_DIR. A kernel that was read from another directory than that is no hit
(`read_outside_dir`). Arguments and output: see this package.
"""

import os
import time
from itertools import product

import triton
import triton_kernels as kernels
from contract import chosen_jobs, report
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGET = GPUTarget("cuda", int(os.environ.get("ARCH", "90")), 32)
WARPS = ({"num_warps": 4}, {"num_warps": 8})
MATMUL_TILES = (
    *((128, 128, 64, 4, 3), (128, 256, 64, 8, 3), (64, 128, 64, 4, 4)),
    *((64, 64, 64, 4, 4), (64, 64, 32, 4, 5), (128, 64, 64, 4, 3)),
)
ATTENTION_TILES = ((64, 64, 64, 4), (128, 64, 64, 4), (128, 64, 128, 8), (64, 64, 128, 4))
found = {"hits": 0, "recompiled": 0, "read_outside_dir": 0}
errors: list[str] = []


def listener(*, src, metadata, metadata_group, times, cache_hit):
    root = triton.knobs.cache.dir + os.sep
    if not cache_hit:
        found["recompiled"] += 1
    elif all(path.startswith(root) for path in metadata_group.values()):
        found["hits"] += 1
    else:
        found["read_outside_dir"] += 1


def pointers(names, dtype):
    return dict.fromkeys((f"{name}_ptr" for name in names), dtype)


def rows():
    for dtype, block, options in product(
        ("*fp16", "*bf16", "*fp32"), (256, 512, 1024, 2048), WARPS
    ):
        const = {"BLOCK": block}
        yield kernels.vec_add, pointers("xyo", dtype) | {"n": "i32"}, const, options
        yield kernels.silu_mul, pointers("xgo", dtype) | {"n": "i32"}, const, options
    row = {"stride": "i32", "n": "i32"}
    for dtype, block, options in product(("*bf16", "*fp32"), (1024, 2048, 4096), WARPS):
        const, norm = {"BLOCK": block}, row | {"eps": "fp32"}
        yield kernels.softmax_row, pointers("xo", dtype) | row, const, options
        yield kernels.rms_norm, pointers("xwo", dtype) | norm, const, options
        yield kernels.layer_norm, pointers("xwbo", dtype) | norm, const, options
    for half in (32, 64, 128):
        types = pointers("xo", "*bf16") | pointers("cs", "*fp32") | {"stride": "i32"}
        yield kernels.rotary, types, {"HALF": half}, {"num_warps": 1}


def tiles():
    sizes = dict.fromkeys(("M", "N", "K", "sam", "sbk", "scm"), "i32")
    lengths = {"sq": "i32", "sk": "i32", "L": "i32", "scale": "fp32"}
    for dtype in ("*fp16", "*bf16"):
        for bm, bn, bk, warps, stages in MATMUL_TILES:
            const = {"BM": bm, "BN": bn, "BK": bk}
            options = {"num_warps": warps, "num_stages": stages}
            yield kernels.matmul, pointers("abc", dtype) | sizes, const, options
        for bm, bn, width, warps in ATTENTION_TILES:
            const = {"BM": bm, "BN": bn, "D": width}
            options = {"num_warps": warps, "num_stages": 2}
            yield kernels.attn_fwd, pointers("qkvo", dtype) | lengths, const, options


def more():
    sizes = dict.fromkeys(("M", "N", "K", "sam", "sbk", "scm"), "i32")
    for dtype, bm, bn, bk in product(("*fp16", "*bf16"), (32, 64, 128), (32, 64), (32, 128)):
        const = {"BM": bm, "BN": bn, "BK": bk}
        yield kernels.matmul, pointers("abc", dtype) | sizes, const, {"num_warps": 4}
    for dtype, block in product(("*fp16", "*bf16", "*fp32"), (64, 128, 4096, 8192)):
        yield kernels.vec_add, pointers("xyo", dtype) | {"n": "i32"}, {"BLOCK": block}, WARPS[0]


def compile_job(kernel, types, constants, options):
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    # Pointers aligned to 16 bytes, as a real launch would specialise them.
    attributes = {
        (position,): [["tt.divisibility", 16]]
        for position, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*")
    }
    source = ASTSource(kernel, signature, constants, attributes)
    try:
        triton.compile(source, target=TARGET, options=options)
    except Exception as error:
        errors.append(f"{kernel.__name__} {constants} {options}: {error!r}"[:300])


triton.knobs.compilation.listener = listener
normal = [*rows(), *tiles()]
jobs = chosen_jobs(normal, list(more()), small=normal[::12])
began = time.time()
for job in jobs:
    compile_job(*job)
report(
    jobs=len(jobs),
    **found,
    errors=errors,
    seconds=time.time() - began,
    triton=triton.__version__,
)
