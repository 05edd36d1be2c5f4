"""Probes of the GPU, by the CUDA driver in a child process."""

from __future__ import annotations

import sys

from mx_artifacts.node import cuda_driver
from mx_artifacts.node.installed import CannotProbe, ComponentAbsent, run_for_json, torch_build
from mx_artifacts.probes.base import ABSENT, Fact, Probe, ProbeContext

_TIMEOUT_SECONDS = 30.0


def device_probe(key: str) -> Probe:
    """Return a probe of what the driver says of the device: "arch", "name" or "sm_count"."""

    def probe(context: ProbeContext) -> Fact:
        if context.cpu_build_has_no_gpu_code and torch_build().accelerator == "cpu":
            raise ComponentAbsent("torch is a CPU-only build")
        if context.cpu_build_has_no_gpu_code and context.gpu_arch == ABSENT:
            raise ComponentAbsent("there is no GPU code")
        origin = f"CUDA driver, device {context.device_index}"
        try:
            device = ask_driver(context, str(context.device_index))
        except CannotProbe as error:
            raise CannotProbe(f"{origin}: {error}") from error
        value = device.get(key) if isinstance(device, dict) else None
        return Fact(str(value or ""), f"probed: {origin}")

    return probe


def ask_driver(context: ProbeContext, question: str) -> object:
    """Return what `node/cuda_driver.py` says of a device's index, or of "driver".

    Raises:
        CannotProbe: there is no driver, or it does not answer.
    """
    argv = (sys.executable, "-I", cuda_driver.__file__, question)
    return run_for_json(argv, context.env, timeout_seconds=_TIMEOUT_SECONDS)
