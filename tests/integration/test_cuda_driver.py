"""The CUDA driver's answers, from a stand-in library where there is no GPU."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from mx_artifacts.errors import ConfigurationError
from mx_artifacts.identity.identify import ProbedIdentity, probe_identity
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.node import cuda_driver
from mx_artifacts.node.installed import run_for_json

# Two devices, sm90 and sm121, as a driver would number them by CUDA_VISIBLE_DEVICES.
STAND_IN = """
#include <stdlib.h>
#include <string.h>
static int physical(int d) {
  const char *v = getenv("CUDA_VISIBLE_DEVICES");
  if (!v) return d < 2 ? d : -1;
  for (; d > 0; d--) { v = strchr(v, ','); if (!v) return -1; v++; }
  return *v >= '0' && *v <= '1' ? *v - '0' : -1;
}
int cuDriverGetVersion(int *out) { *out = 12090; return 0; }
int cuInit(unsigned f) { (void)f; return physical(0) < 0 ? 100 : 0; }
int cuDeviceGet(int *out, int d) { *out = physical(d); return *out < 0 ? 101 : 0; }
int cuDeviceGetName(char *out, int n, int d) {
  strncpy(out, d ? "Stand-in B" : "Stand-in A", n); return 0;
}
int cuDeviceGetAttribute(int *out, int a, int d) {
  switch (a) {
    case 75: *out = d ? 12 : 9; return 0;
    case 76: *out = d ? 1 : 0; return 0;
    case 16: *out = d ? 48 : 132; return 0;
  }
  return 1;
}
"""
STATED = {
    "backend_framework": "none",
    "cuda_version": "13.0",
    "deep_gemm_jit_key": "k",
}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which the CUDA driver is the stand-in."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    directory = tmp_path_factory.mktemp("driver")
    source = directory / "stand_in.c"
    source.write_text(STAND_IN)
    library = directory / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_LIBRARY_PATH": str(directory)}


def probe(env: dict[str, str], device_index: int = 0) -> ProbedIdentity:
    kind = get_kind("deep_gemm")
    return probe_identity(
        kind, model_name="m", overrides=STATED, env=env, device_index=device_index
    )


@pytest.mark.parametrize(
    ("visible", "index", "facts"),
    [
        (None, 0, ("sm90", "Stand-in A", "132")),
        (None, 1, ("sm121", "Stand-in B", "48")),
        ("1,0", 0, ("sm121", "Stand-in B", "48")),
        ("1", 0, ("sm121", "Stand-in B", "48")),
    ],
)
def test_facts_are_those_of_the_device_that_will_run(
    driver: dict[str, str], visible: str | None, index: int, facts: tuple[str, str, str]
) -> None:
    env = driver if visible is None else {**driver, "CUDA_VISIBLE_DEVICES": visible}
    probed = probe(env, index)
    extras = probed.identity.extra_parameters
    assert (probed.identity.gpu_arch, extras["gpu_name"], extras["gpu_sm_count"]) == facts
    assert probed.origins["gpu_arch"] == f"probed: CUDA driver, device {index}"
    assert probed.accelerator == "cuda"


@pytest.mark.parametrize(
    ("visible", "index", "why"),
    [
        ("", 0, "cuInit failed with CUDA error 100"),
        ("1", 1, r"cuDeviceGet\(1\) failed with CUDA error 101"),
    ],
)
def test_a_device_that_is_not_there_is_an_error_that_names_the_field(
    driver: dict[str, str], visible: str, index: int, why: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"gpu_arch: CUDA driver, device {index}: {why}"):
        probe({**driver, "CUDA_VISIBLE_DEVICES": visible}, index)


def test_the_cuda_version_that_the_driver_runs(driver: dict[str, str]) -> None:
    argv = (sys.executable, "-I", cuda_driver.__file__, "driver")
    assert run_for_json(argv, driver, timeout_seconds=30) == {"cuda_major": 12}
