"""Build or load two C++ modules through TVM-FFI's cache; print one JSON line.

Chosen by TVM_FFI_CACHE_DIR. A hit is a module for which ninja says that there is no work to do.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import tvm_ffi.cpp

SCALE = "int64_t %s(int64_t a, int64_t b) { return a * %d + b; }"

said: list[str] = []
real_run = subprocess.run


def run_and_listen(*args: Any, **kwargs: Any) -> Any:
    done = real_run(*args, **kwargs)
    if done.args[0] == "ninja":
        said.append(str(done.stdout))
    return done


def main() -> None:
    subprocess.run = run_and_listen  # type: ignore[assignment]
    hits, errors = 0, []
    for number in (1, 2):
        name = f"scale{number}"
        try:
            module = tvm_ffi.cpp.load_inline(
                name, cpp_sources=SCALE % (name, number), functions=name
            )
            if getattr(module, name)(5, 7) != 5 * number + 7:
                errors.append(f"{name}: wrong result")
            hits += "no work to do" in said[-1]
        except Exception as error:
            errors.append(f"{name}: {error!r}")
    print(json.dumps({"jobs": 2, "hits": hits, "errors": errors}))


if __name__ == "__main__":
    main()
