"""Asks the CUDA driver, in a separate process: `python -I cuda_driver.py INDEX` or `… driver`.

Prints a JSON object about a device {"arch", "name", "sm_count"}, or about the driver itself
{"cuda_major"}; or says on stderr why not and exits 1.

The driver, not NVML, because only it numbers devices as the engine will: by CUDA_VISIBLE_DEVICES,
CUDA_DEVICE_ORDER and MIG. A process of its own, because a process that has called cuInit cannot
use CUDA in children it forks, which engines do. Neither torch nor a CUDA context is needed.
"""

from __future__ import annotations

import ctypes
import json
import sys

# cuda.h, CUdevice_attribute.
_MULTIPROCESSOR_COUNT = 16
_COMPUTE_CAPABILITY_MAJOR = 75
_COMPUTE_CAPABILITY_MINOR = 76
_NAME_BYTES = 256


def _check(call: str, result: int) -> None:
    if result != 0:
        raise OSError(f"{call} failed with CUDA error {result}")


def describe(index: int) -> dict[str, str | int]:
    """Return architecture, name and SM count of the device that CUDA numbers `index`.

    Raises:
        OSError: no driver, no device, or no such device.
    """
    cuda = ctypes.CDLL("libcuda.so.1")
    _check("cuInit", cuda.cuInit(0))
    device = ctypes.c_int()
    _check(f"cuDeviceGet({index})", cuda.cuDeviceGet(ctypes.byref(device), index))

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        result = cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        _check(f"cuDeviceGetAttribute({number})", result)
        return value.value

    name = ctypes.create_string_buffer(_NAME_BYTES)
    _check("cuDeviceGetName", cuda.cuDeviceGetName(name, _NAME_BYTES, device))
    major = attribute(_COMPUTE_CAPABILITY_MAJOR)
    minor = attribute(_COMPUTE_CAPABILITY_MINOR)
    return {
        "arch": f"sm{major}{minor}",
        "name": name.value.decode(errors="replace"),
        "sm_count": attribute(_MULTIPROCESSOR_COUNT),
    }


def describe_driver() -> dict[str, int]:
    """Return the CUDA version that the driver can run.

    Raises:
        OSError: no driver.
    """
    version = ctypes.c_int()
    cuda = ctypes.CDLL("libcuda.so.1")
    _check("cuDriverGetVersion", cuda.cuDriverGetVersion(ctypes.byref(version)))
    return {"cuda_major": version.value // 1000}


if __name__ == "__main__":
    try:
        asked = sys.argv[1]
        print(json.dumps(describe_driver() if asked == "driver" else describe(int(asked))))
    except OSError as error:
        sys.exit(str(error))
