"""An empty libcuda.so.1, for what links or loads against the driver on a machine without a GPU.

Its functions answer CUDA_ERROR_NO_DEVICE.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sysconfig
import tempfile
from pathlib import Path

_NAME = re.compile(rb"(?<![A-Za-z0-9_])cu[A-Z][A-Za-z0-9_]{3,60}(?![A-Za-z0-9_])")
_OF_VLLM = ("cuGetProcAddress_v2", "cuPointerGetAttribute", "cuTensorMapEncodeTiled")
"""What vllm/_C_stable_libtorch.abi3.so of 0.33 is linked with."""
_NO_DEVICE = 100


def load_libcuda() -> None:
    """Make it in the directory $LIBCUDA_STUB, unless it is there, and load it.

    Once it is loaded, whoever asks the loader for libcuda.so.1 is given it.
    """
    library = Path(os.environ["LIBCUDA_STUB"]) / "libcuda.so.1"
    if not library.exists():
        _make(library)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def _functions() -> list[str]:
    """Return the functions that the CuTe DSL's runtime and Triton's launcher, where they are
    installed, may look up."""
    packages = Path(sysconfig.get_path("purelib"))
    users = [
        *packages.glob("nvidia_cutlass_dsl/*/lib/libcute_dsl_runtime.so"),
        *packages.glob("triton/backends/nvidia/driver.c"),
    ]
    names = {name.decode() for user in users for name in _NAME.findall(user.read_bytes())}
    return sorted(names | {"cuInit", *_OF_VLLM})


def _make(library: Path) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    functions = [f"int {name}(void){{return {_NO_DEVICE};}}\n" for name in _functions()]
    with tempfile.TemporaryDirectory(dir=library.parent) as directory:
        source, made = Path(directory) / "stub.c", Path(directory) / library.name
        source.write_text("".join(functions))
        command = ("gcc", "-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{library.name}")
        subprocess.run((*command, "-o", made, source), check=True)
        link = library.with_name("libcuda.so")  # which -lcuda looks for
        link.unlink(missing_ok=True)
        link.symlink_to(library.name)
        made.replace(library)
