"""Fill or probe a real DeepGEMM cache (DeepJIT): sm_90a kernels compiled, never launched.

Chosen by DG_JIT_CACHE_DIR, which may be a list. The cache is DeepJIT's own work: gen_deepgemm.cpp
calls it from the wheel's headers. Only the device is made up, an H100 SXM. Arguments and output:
see this package.
"""

import hashlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from contract import report
from cubin import require_whole

HERE = Path(__file__).parent
HEADERS = HERE / "deepgemm_headers"
CUDA = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))


def package(name):
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def harness():
    """Return the compiled gen_deepgemm.cpp, kept in this Python's environment."""
    source = HERE / "gen_deepgemm.cpp"
    ours = sorted(path for path in HEADERS.rglob("*") if path.is_file())
    files = (source, package("deep_gemm") / "VERSION", *ours)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    program = Path(sys.prefix) / "gen_deepgemm" / digest[:16]
    if not program.exists():
        program.parent.mkdir(exist_ok=True)
        includes = (
            *(HEADERS, package("deep_gemm") / "include"),
            *(package("torch") / "include", CUDA / "include"),
        )
        with TemporaryDirectory(dir=program.parent) as directory:
            built = Path(directory) / "built"
            # -O1 leaves out what is never called, and would need torch's libraries.
            command = [
                "g++",
                "-std=c++20",
                "-O1",
                "-DDJ_DISABLE_GIL=1",
                "-o",
                str(built),
                str(source),
            ]
            command += [f"-I{include}" for include in includes]
            subprocess.run(command, check=True)
            built.rename(program)
    return program


def run(which):
    """Return (verdict, seconds, directory or failure) of each kernel of a set."""
    done = subprocess.run(
        [harness(), package("deep_gemm"), which], stdout=subprocess.PIPE, text=True, check=True
    )
    return [line.split(" ", 2) for line in done.stdout.splitlines()]


[argument] = sys.argv[1:] or [""]
hits, errors, seconds = [], [], 0.0
for verdict, spent, text in run({"": "normal", "--some": "some", "--more": "more"}[argument]):
    seconds += float(spent)
    try:
        if verdict == "ERROR":
            raise ValueError(text)
        require_whole(Path(text) / "kernel.cubin")
        hits.append(verdict == "HIT")
    except (OSError, ValueError) as error:
        errors.append(str(error)[:400])
report(
    jobs=len(hits) + len(errors),
    hits=sum(hits),
    recompiled=hits.count(False),
    errors=errors,
    seconds=seconds,
)
