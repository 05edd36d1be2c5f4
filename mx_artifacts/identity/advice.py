"""What a user can do about an identity field that differs."""

from __future__ import annotations

from collections.abc import Mapping

_IMAGE = "run the same container image on both nodes"
_PLACE = "install it at the same path on both nodes, as one container image does"
_CPU = "its host code is for another CPU and cannot be used here; publish from a node like this one"
_GPU = "its code is for another GPU and cannot be used here; publish from a node with this GPU"
_SIZES = "start the engine with the same parallel sizes as the source's, and state them alike"
_FLAGS = "start the engine with the same flags as the source's, and state them alike"
_VARIABLES = "set these variables alike on both nodes; they enter the compiler's own key"

_ADVICE: Mapping[str, str] = {
    "model_name": "give the same --model string on both nodes; engines put it into their own keys",
    "backend_framework": "it is another engine's cache; say which one runs here with --framework",
    "accelerator": "its code is for another kind of device and cannot be used here",
    "artifact": "it serves no cache; publish again there",
    "gpu_arch": "its code is for another GPU architecture and cannot be used here; publish from a "
    "node with this one",
    "gpu_name": _GPU,
    "gpu_sm_count": _GPU + " (a MIG slice has fewer SMs)",
    "machine": _CPU,
    "cpu_model": _CPU,
    "cpu_flags": _CPU,
    "aten_cpu_capability": "set ATEN_CPU_CAPABILITY alike on both nodes",
    "cpp_threads": "give both processes the same OMP_NUM_THREADS and number of CPUs",
    "tensor_parallel_size": _SIZES,
    "pipeline_parallel_size": _SIZES,
    "expert_parallel_size": _SIZES,
    "dtype": _FLAGS,
    "quantization": _FLAGS,
    "revision": "use the same revision of the model (MX_MODEL_REVISION)",
    "compile_config_digest": "start the engine with the same configuration, and give both nodes "
    "the same MX_ARTIFACT_COMPILE_CONFIG_DIGEST",
    "cuda_home": "set CUDA_HOME to the same path on both nodes; ninja compares its spelling",
    "cute_dsl_libs": "set CUTE_DSL_LIBS here to what the source has",
    "cute_dsl_stack": "install torch, apache-tvm-ffi and nvidia-cutlass-dsl by the same installer "
    "on both nodes, as one container image does; FlashInfer compares each wheel's RECORD",
    "cute_dsl_flavor": "install one flavor of nvidia-cutlass-dsl, or drivers for the same CUDA",
    "cute_dsl_arch": "set CUTE_DSL_ARCH alike on both nodes",
    "cute_dsl_settings": _VARIABLES,
    "flashinfer_archs": "set FLASHINFER_CUDA_ARCH_LIST alike on both nodes",
    "flashinfer_settings": _VARIABLES,
    "tvm_ffi_archs": "set TVM_FFI_CUDA_ARCH_LIST alike on both nodes",
    "tvm_ffi_settings": _VARIABLES,
    "python_include": _PLACE,
    "site_packages": _PLACE,
    "flashinfer_path": _PLACE,
    "tvm_ffi_path": _PLACE,
    "deep_gemm_include_dir": _PLACE,
    "cpp_torch_path": _PLACE,
    "cpp_python_include": _PLACE,
    "cpp_compiler": _IMAGE,
    "triton_key": _IMAGE,
    "deep_gemm_jit_key": _IMAGE,
    "python_abi": _IMAGE,
    "libc": _IMAGE,
}


def advice_for(name: str) -> str:
    """Return a sentence on what to do where the identity field or extra parameter differs."""
    key = name.removeprefix("extra_parameters.")
    if key in _ADVICE:
        return _ADVICE[key]
    if key.endswith("_version"):
        return _IMAGE
    return f"state the same --identity {key}=VALUE on both nodes, if they are alike in it"
