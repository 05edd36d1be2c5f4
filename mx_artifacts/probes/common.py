"""Identity values that every kind may name, and advice for values that only a user can state."""

from __future__ import annotations

from collections.abc import Mapping

from mx_artifacts.probes import engines, gpu, host
from mx_artifacts.probes.base import SAME_IMAGE, IdentityValue

_GPU = "its code is for another GPU and cannot be used here; publish from a node with this GPU"
_SIZES = "start the engine with the same parallel sizes as the source's, and state them alike"
_FLAGS = "start the engine with the same flags as the source's, and state them alike"

COMMON_VALUES: Mapping[str, IdentityValue] = {
    "backend_framework": IdentityValue(
        engines.backend_framework,
        "it is another engine's cache; say which one runs here with --framework",
    ),
    "backend_framework_version": IdentityValue(engines.backend_framework_version, SAME_IMAGE),
    "torch_version": IdentityValue(engines.torch_version, SAME_IMAGE),
    "cuda_version": IdentityValue(engines.cuda_version, SAME_IMAGE, engines.reference_cuda_version),
    "gpu_arch": IdentityValue(
        gpu.device_probe("arch"),
        "its code is for another GPU architecture and cannot be used here; publish from a node "
        "with this one",
    ),
    "gpu_name": IdentityValue(gpu.device_probe("name"), _GPU),
    "gpu_sm_count": IdentityValue(
        gpu.device_probe("sm_count"), f"{_GPU} (a MIG slice has fewer SMs)"
    ),
    "machine": IdentityValue(host.machine, host.SAME_CPU),
    "python_abi": IdentityValue(host.python_abi, SAME_IMAGE),
    "libc": IdentityValue(host.libc, SAME_IMAGE),
    # The engine's own, which cannot be probed.
    "tensor_parallel_size": IdentityValue(advice=_SIZES),
    "pipeline_parallel_size": IdentityValue(advice=_SIZES),
    "expert_parallel_size": IdentityValue(advice=_SIZES),
    "dtype": IdentityValue(advice=_FLAGS),
    "quantization": IdentityValue(advice=_FLAGS),
    "revision": IdentityValue(advice="use the same revision of the model (MX_MODEL_REVISION)"),
    "compile_config_digest": IdentityValue(
        advice="start the engine with the same configuration, and give both nodes the same "
        "MX_ARTIFACT_COMPILE_CONFIG_DIGEST"
    ),
    # Not probed, but compared.
    "model_name": IdentityValue(
        advice="give the same --model string on both nodes; engines put it into their own keys"
    ),
    "accelerator": IdentityValue(
        advice="its code is for another kind of device and cannot be used here"
    ),
    "artifact": IdentityValue(advice="it serves no cache; publish again there"),
}
