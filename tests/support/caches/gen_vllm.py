"""Fill or probe a real torch_compile_cache of vLLM's with toy models on the CPU, without weights.

Chosen by VLLM_CACHE_ROOT; VLLM_USE_MEGA_AOT_ARTIFACT=0 and VLLM_USE_AOT_COMPILE=0 choose the other
two layouts. The trees, their names and the code that loads them are vLLM's own; that they hold C++
instead of Triton is the CPU's doing. A job is a model. It hit if vLLM says that it loaded it, and
neither vLLM nor Inductor compiled anything for it. What Inductor asks the compiler for once a
process (vector instructions, precompiled headers) does not count. Arguments and output: see this
package.
"""

import logging
import os
import time

os.environ.setdefault("VLLM_LOGGING_LEVEL", "INFO")
from libcuda_stub import load_libcuda

load_libcuda()  # vLLM's operators are linked with the driver

import torch  # noqa: E402
import torch._inductor.cpp_builder as cpp_builder  # noqa: E402
import vllm  # noqa: E402
import vllm._C_stable_libtorch  # noqa: E402  (defines torch.ops._C)
from contract import chosen_jobs, report  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from vllm.compilation.counter import compilation_counter as counter  # noqa: E402
from vllm.compilation.decorators import support_torch_compile  # noqa: E402
from vllm.config import (  # noqa: E402
    CompilationConfig,
    CompilationMode,
    CUDAGraphMode,
    DeviceConfig,
    PassConfig,
    VllmConfig,
    set_current_vllm_config,
)
from vllm.forward_context import set_forward_context  # noqa: E402

torch.set_num_threads(2)  # in Inductor's key
torch.manual_seed(0)
operators = torch.library.Library("toy", "FRAGMENT")
operators.define("attention(Tensor q, Tensor k, Tensor v, Tensor(a!) out) -> ()")
operators.impl("attention", lambda q, k, v, out: None, "Meta")
built: list[str] = []
said: list[str] = []
build = cpp_builder.CppBuilder.build


def counted_build(self, *args, **kwargs):
    built.append(os.path.basename(self.get_target_file_path()))
    return build(self, *args, **kwargs)


def attention(q, k, v, out):
    out.copy_(torch.tanh(q) * k + v)


@support_torch_compile
class Toy(nn.Module):
    """A layer without matrix products: two graphs around an operator that splits them."""

    def __init__(self, *, vllm_config, prefix="", width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = functional.silu(x) * self.scale, functional.gelu(x), torch.sigmoid(x)
        mixed = torch.empty_like(q)
        torch.ops.toy.attention(q, k, v, mixed)
        return x + functional.silu(mixed) * self.scale


def configuration(width):
    off = {n: False for n in PassConfig.__dataclass_fields__ if n.startswith(("fuse_", "enable_"))}
    return VllmConfig(
        device_config=DeviceConfig(device="cpu"),
        additional_config={"width": width},  # so that each model has a name of its own
        compilation_config=CompilationConfig(
            mode=CompilationMode.VLLM_COMPILE,
            backend="inductor",
            custom_ops=["none"],
            splitting_ops=["toy::attention"],
            cudagraph_mode=CUDAGraphMode.NONE,
            compile_sizes=[],
            inductor_compile_config={},
            pass_config=PassConfig(**off),
        ),
    )


def run(width):
    """Run a model; return whether it hit."""
    torch._dynamo.reset()
    before, kernels = counter.clone(), len(built)
    config = configuration(width)
    with set_current_vllm_config(config), torch.inference_mode():
        model = Toy(vllm_config=config, width=width).eval()
        with set_forward_context({}, vllm_config=config):
            for tokens in (16, 32):
                x = torch.randn(tokens, width)
                if not torch.allclose(model(x), model.forward(x), atol=1e-4):
                    raise AssertionError("the compiled model gives other results")
    aot = os.environ.get("VLLM_USE_AOT_COMPILE") != "0"
    loaded = counter.num_compiled_artifacts_loaded > before.num_compiled_artifacts_loaded
    if aot:
        loaded = loaded and model.was_aot_compile_fn_loaded_from_disk
        loaded = loaded and counter.num_aot_artifacts_loaded == before.num_aot_artifacts_loaded + 1
    compiled = counter.num_inductor_compiles - before.num_inductor_compiles
    compiled += sum(".main." in name for name in built[kernels:])
    return bool(loaded and not compiled)


class Listener(logging.Handler):
    def emit(self, record):
        message = record.getMessage()
        if "irectly load" in message or "load failure" in message:
            said.append(message.replace(os.environ["VLLM_CACHE_ROOT"], "$VLLM_CACHE_ROOT"))


operators.impl("attention", attention, "CPU")
cpp_builder.CppBuilder.build = counted_build
logging.getLogger("vllm").addHandler(Listener())
logging.getLogger("vllm").setLevel(logging.INFO)
began = time.time()
hits, errors = [], []
widths = chosen_jobs(normal=(64, 96), more=range(128, 256, 16))
for width in widths:
    try:
        hits.append(run(width))
    except Exception as error:
        errors.append(f"width {width}: {error!r}"[:400])
report(
    jobs=len(widths),
    hits=sum(hits),
    recompiled=hits.count(False),
    errors=errors,
    seconds=time.time() - began,
    vllm=vllm.__version__,
    counters={name: count for name, count in vars(counter).items() if count},
    cpp_builds=sorted(built),
    said=said,
)
