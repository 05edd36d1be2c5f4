"""Fill or probe a faithful synthetic of a DeepGEMM 2.x cache; a real one takes a GPU to make.

Chosen by DG_JIT_CACHE_DIR (one directory). Faithful: the layout, what enters the key, `-I` with the
absolute include directory among it, how an entry is looked up and what of it makes the process
fail, compiling in tmp/ and the rename, nvcc itself and DeepGEMM's own kernels. Not faithful: the
hash function, the digest over the includes (here of one header), and that nothing is loaded: of
`cuobjdump -symbols` and the driver only this is left, that a cubin must be whole. Arguments and
output: see this package.
"""

import hashlib
import os
import re
import shutil
import subprocess
import time
import uuid
from importlib.util import find_spec
from itertools import product
from pathlib import Path

from contract import chosen_jobs, report
from cubin import require_whole

CACHE = Path(os.environ["DG_JIT_CACHE_DIR"])
DEEP_GEMM = find_spec("deep_gemm")
assert DEEP_GEMM is not None
assert DEEP_GEMM.origin is not None
INCLUDE = Path(DEEP_GEMM.origin).parent / "include"
NVCC = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "nvcc"
FLAGS = (
    "-std=c++20 --diag-suppress=39,161,174,177,186,940 --ptxas-options=--register-usage-level=10 "
    f"-I{INCLUDE} --gpu-architecture=sm_90a "
    "--compiler-options=-fPIC,-O3,-fconcepts,-Wno-deprecated-declarations,-Wno-abi "
    "-O3 --expt-relaxed-constexpr --expt-extended-lambda"
)
HEADER = "deep_gemm/impls/smxx_layout.cuh"
CODE = """// Includes' hash value: %s
#include <%s>

using namespace deep_gemm;

static void __instantiate_kernel() {
    auto ptr = reinterpret_cast<void*>(&transpose_fp32<512, %d, %d, 64>);
};
"""
NORMAL = list(product((32, 64, 128), (16, 56)))
MORE = list(product((32, 64, 128), (8, 24, 32, 48)))


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def nvcc_signature():
    said = subprocess.run([NVCC, "--version"], capture_output=True, text=True, check=True).stdout
    release = re.search(r"release (\d+\.\d+)", said)
    assert release is not None
    return "NVCC" + release[1]


def is_there(entry):
    """Return whether the entry exists; then it must be complete, since it came by one rename."""
    if not entry.exists():
        return False
    if not all((entry / name).exists() for name in ("kernel.cu", "kernel.cubin")):
        raise ValueError(f"Corrupted JIT cache directory {entry}")
    return True


def compile_into(entry, code):
    scratch = CACHE / "tmp" / f"{os.getpid()}-{uuid.uuid4().hex[:24]}"
    scratch.mkdir(parents=True)
    source, cubin = scratch / "kernel.cu", scratch / "kernel.cubin"
    source.write_text(code)
    command = [str(NVCC), str(source), "-cubin", "-o", str(cubin), *FLAGS.split()]
    subprocess.run(command, cwd=CACHE / "tmp", capture_output=True, check=True)
    entry.parent.mkdir(exist_ok=True)
    try:
        scratch.rename(entry)
    except OSError:  # another process was first
        shutil.rmtree(scratch)


def build(name, code):
    """Return whether the kernel was there."""
    key = digest(f"{name}$${signature}$${FLAGS}$${code}")
    entry = CACHE / "cache" / f"kernel.{name}.{key}"
    hit = is_there(entry)
    if not hit:
        compile_into(entry, code)
        is_there(entry)
    require_whole(entry / "kernel.cubin")
    return hit


jobs = chosen_jobs(NORMAL, MORE)
signature = nvcc_signature()
includes = digest((INCLUDE / HEADER).read_text())
began = time.time()
hits, errors = [], []
for rows, scales in jobs:
    try:
        hits.append(build("transpose_fp32", CODE % (includes, HEADER, rows, scales)))
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        errors.append(str(error)[:400])
report(
    jobs=len(jobs),
    hits=sum(hits),
    recompiled=hits.count(False),
    errors=errors,
    seconds=time.time() - began,
)
