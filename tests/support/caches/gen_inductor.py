"""Fill or probe a real TorchInductor cache on the CPU, FX-graph and AOTAutograd caches on.

usage: TORCHINDUCTOR_CACHE_DIR=… [TMPDIR=…] [NT=2] [CHECK=1] gen_inductor.py [JOB …]
Prints one JSON line: the compiler's counters, the C++ programs built, errors and seconds. A hit of
the counters does not mean that nothing was compiled: look at cpp_builds too. CHECK=1 compares the
results with the uncompiled model's.
"""

import json
import os
import sys
import time

START = time.time()
import torch  # noqa: E402  (its import is timed)
import torch._inductor.cpp_builder as cpp_builder  # noqa: E402
import torch_models as models  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

torch.manual_seed(0)
torch.set_num_threads(int(os.environ.get("NT", "2")))
built = []
build = cpp_builder.CppBuilder.build


def counted_build(self, *args, **kwargs):
    built.append(os.path.basename(self.get_target_file_path()))
    return build(self, *args, **kwargs)


def tokens(*shape):
    return lambda: torch.randint(0, 512, shape)


def noise(*shape):
    return lambda: torch.randn(shape)


JOBS = {  # name: (model, input, train, options of torch.compile)
    "mini_infer": (models.Mini(), noise(8, 64), False, {}),
    "mlp_infer": (models.MLP(), noise(8, 256), False, {}),
    "mlp_train": (models.MLP(), noise(8, 256), True, {}),
    "mlp_dyn": (models.MLP(d=128), noise(12, 128), False, {"dynamic": True}),
    "tiny_infer": (models.Tiny(), tokens(2, 64), False, {}),
    "tiny_train": (models.Tiny(), tokens(2, 64), True, {}),
    "tiny_dyn": (models.Tiny(n=2), tokens(3, 48), False, {"dynamic": True}),
    "conv_infer": (models.Conv().eval(), noise(4, 3, 32, 32), False, {}),
    "conv_train": (models.Conv(), noise(4, 3, 32, 32), True, {}),
}


def run(name, model, make_input, train, options):
    torch._dynamo.reset()
    compiled = torch.compile(model, **options)
    example = make_input()
    if train:
        compiled(example).float().sum().backward()
        return
    with torch.no_grad():
        output = compiled(example)
        if os.environ.get("CHECK") and not torch.allclose(output, model(example), atol=1e-4):
            raise AssertionError(f"{name}: the compiled model gives other results")


cpp_builder.CppBuilder.build = counted_build
loaded = time.time()
seconds, errors = {}, []
for name, job in JOBS.items():
    if sys.argv[1:] and name not in sys.argv[1:]:
        continue
    began = time.time()
    try:
        run(name, *job)
    except Exception as error:
        errors.append(f"{name}: {error!r}"[:400])
    seconds[name] = round(time.time() - began, 2)
inductor, autograd = counters["inductor"], counters["aot_autograd"]
print(
    json.dumps(
        {
            "torch": torch.__version__,
            "dir": os.environ.get("TORCHINDUCTOR_CACHE_DIR"),
            "jobs": len(seconds),
            "fx_hit": inductor["fxgraph_cache_hit"],
            "fx_miss": inductor["fxgraph_cache_miss"],
            "fx_bypass": inductor["fxgraph_cache_bypass"],
            "aot_hit": autograd["autograd_cache_hit"],
            "aot_miss": autograd["autograd_cache_miss"],
            "aot_bypass": autograd["autograd_cache_bypass"],
            "cpp_builds": len(built),
            "built_kinds": sorted({name.split(".", 1)[-1] for name in built}),
            "errors": errors,
            "import_seconds": round(loaded - START, 2),
            "seconds": seconds,
        }
    )
)
