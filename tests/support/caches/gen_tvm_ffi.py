"""Build or load C++ modules through TVM-FFI's cache, chosen by TVM_FFI_CACHE_DIR.

A hit is a module for which ninja says that there is no work to do. Arguments and output: see this
package.
"""

import subprocess
import time

import tvm_ffi.cpp
from contract import chosen_jobs, report

NORMAL, MORE, SMALL = range(1, 5), range(5, 25), range(1, 3)
SCALE = "int64_t %s(int64_t a, int64_t b) { return a * %d + b; }"

said: list[str] = []
real_run = subprocess.run


def run_and_listen(*args, **kwargs):
    done = real_run(*args, **kwargs)
    if done.args[0] == "ninja":
        said.append(str(done.stdout))
    return done


def load(number):
    """Load one module; return whether it was not built."""
    name = f"scale{number}"
    module = tvm_ffi.cpp.load_inline(name, cpp_sources=SCALE % (name, number), functions=name)
    if getattr(module, name)(5, 7) != 5 * number + 7:
        raise AssertionError("wrong result")
    return "no work to do" in said[-1]


subprocess.run = run_and_listen
began = time.time()
hits, errors = [], []
numbers = chosen_jobs(NORMAL, MORE, SMALL)
for number in numbers:
    try:
        hits.append(load(number))
    except Exception as error:
        errors.append(f"scale{number}: {error!r}"[-400:])
report(
    jobs=len(numbers),
    hits=sum(hits),
    recompiled=hits.count(False),
    errors=errors,
    seconds=time.time() - began,
    tvm_ffi=tvm_ffi.__version__,
)
