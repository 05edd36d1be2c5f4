"""Fill or probe a real TorchInductor cache on the CPU, FX-graph and AOTAutograd caches on.

Chosen by TORCHINDUCTOR_CACHE_DIR (and TMPDIR). A hit of the compiler's counters does not mean that
nothing was compiled, so a job is one only if no C++ program was built for it either. Inference is
compared with the uncompiled model. Arguments and output: see this package.
"""

import os
import time

import torch
import torch._inductor.cpp_builder as cpp_builder
import torch_models as models
from contract import chosen_jobs, report
from torch._dynamo.utils import counters

torch.manual_seed(0)
torch.set_num_threads(2)  # in Inductor's key
built: list[str] = []
build = cpp_builder.CppBuilder.build


def counted_build(self, *args, **kwargs):
    built.append(os.path.basename(self.get_target_file_path()))
    return build(self, *args, **kwargs)


def tokens(*shape):
    return lambda: torch.randint(0, 512, shape)


def noise(*shape):
    return lambda: torch.randn(shape)


# Few and small: each kernel's C++ parses torch's headers again, since no header is precompiled.
JOBS = {  # name: (model, input, train, options of torch.compile)
    "mini_infer": (models.Mini(), noise(8, 64), False, {}),
    "mlp_infer": (models.MLP(n=1), noise(8, 256), False, {}),
    "mlp_train": (models.MLP(n=1), noise(8, 256), True, {}),
    "mlp_dyn": (models.MLP(d=128, n=1), noise(12, 128), False, {"dynamic": True}),
    "tiny_infer": (models.Tiny(n=1), tokens(2, 64), False, {}),
    "conv_infer": (models.Conv().eval(), noise(4, 3, 32, 32), False, {}),
}
MORE: dict[str, tuple[object, ...]] = {
    f"mlp_{width}": (models.MLP(d=width, h=2 * width), noise(8, width), False, {})
    for width in range(64, 256, 16)
}


def run(model, make_input, train, options):
    torch._dynamo.reset()
    compiled = torch.compile(model, **options)
    example = make_input()
    if train:
        compiled(example).float().sum().backward()
        return
    with torch.no_grad():
        if not torch.allclose(compiled(example), model(example), atol=1e-4):
            raise AssertionError("the compiled model gives other results")


def counted():
    """Return what was found in the cache, and what had to be made, until now."""
    inductor = counters["inductor"]  # a compile with dynamic shapes replaces it
    missed = inductor["fxgraph_cache_miss"] + inductor["fxgraph_cache_bypass"]
    return inductor["fxgraph_cache_hit"], missed + len(built)


def compile_job(name):
    """Run a job; return whether it hit: something came from the cache, and nothing was made."""
    found, made = counted()
    run(*(JOBS | MORE)[name])
    return counted()[0] > found and counted()[1] == made


cpp_builder.CppBuilder.build = counted_build
began = time.time()
hits, errors = [], []
names = chosen_jobs(list(JOBS), list(MORE), small=["mini_infer"])
for name in names:
    try:
        hits.append(compile_job(name))
    except Exception as error:
        errors.append(f"{name}: {error!r}"[:400])
inductor, autograd = counters["inductor"], counters["aot_autograd"]
report(
    jobs=len(names),
    hits=sum(hits),
    recompiled=hits.count(False),
    errors=errors,
    seconds=time.time() - began,
    torch=torch.__version__,
    fx_hit=inductor["fxgraph_cache_hit"],
    fx_miss=inductor["fxgraph_cache_miss"],
    fx_bypass=inductor["fxgraph_cache_bypass"],
    aot_hit=autograd["autograd_cache_hit"],
    aot_miss=autograd["autograd_cache_miss"],
    cpp_builds=sorted(built),
)
