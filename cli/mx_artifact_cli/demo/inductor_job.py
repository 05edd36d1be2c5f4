"""Compile a small language model with torch.compile and run it: a prompt, then a decoding step.

usage: python -m mx_artifact_cli.demo.inductor_job

The cache is in the directory TORCHINDUCTOR_CACHE_DIR. The job prints one `JobResult` line. It
compares each result with that of the uncompiled model, so a hit with wrong results fails.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch._dynamo.utils import counters
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch.nn import functional

from mx_artifact_cli.demo.result import JobResult

THREADS = 2
"""Number of threads. Inductor puts it into CPU kernels and keys, so all nodes must use the same."""

TOLERANCE = 1e-3
"""Maximum difference from the uncompiled model; a GPU rounds and orders sums differently."""


class Block(torch.nn.Module):
    """A transformer block: causal attention, then a gated feed-forward network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width) for _ in range(2)])
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        attention = scores.masked_fill(future, float("-inf")).softmax(-1)
        x = x + self.out((attention @ value).transpose(1, 2).reshape(batch, length, width))
        gate, hidden = self.up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * hidden)


class TinyModel(torch.nn.Module):
    """Computes the scores of the next token from tokens."""

    def __init__(self, vocabulary: int = 512, width: int = 128, heads: int = 4, depth: int = 1):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, width)
        self.blocks = torch.nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embedding(tokens)))


def run(model: TinyModel, tokens: torch.Tensor) -> None:
    """Run the compiled model on `tokens` and compare the result with the uncompiled model."""
    torch._dynamo.reset()  # so that each shape is a separate job and none becomes dynamic
    with torch.no_grad():
        torch.testing.assert_close(
            torch.compile(model)(tokens), model(tokens), atol=TOLERANCE, rtol=TOLERANCE
        )


def libraries(root: Path) -> set[Path]:
    """Return the C++ libraries that Inductor compiled.

    Triton's files below `triton/` are not included: a hit writes them again from the graph cache.
    """
    return set(root.glob("??/*.so"))


def versions(device: str) -> dict[str, str]:
    """Return the versions that decide whether the cache fits; `gpu_arch` only if there is a GPU."""
    known = {"torch": torch.__version__, "device": device}
    if device == "cuda":
        known["gpu_arch"] = "sm{}{}".format(*torch.cuda.get_device_capability())
    return known


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    inductor_config.fx_graph_cache = True
    functorch_config.enable_autograd_cache = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = TinyModel().to(device)
    root = Path(cache_dir())
    before = libraries(root)
    started = time.monotonic()
    for batch, length in ((1, 64), (8, 1)):  # a prompt, then a step of decoding
        run(model, torch.randint(0, 512, (batch, length), device=device))
    seconds = time.monotonic() - started
    fx, autograd = counters["inductor"], counters["aot_autograd"]
    hits = fx["fxgraph_cache_hit"]
    misses = fx["fxgraph_cache_miss"] + fx["fxgraph_cache_bypass"]
    result = JobResult(
        kind="inductor",
        jobs=hits + misses,
        hits=hits,
        misses=misses,
        rebuilt=len(libraries(root) - before),
        outside=0,
        seconds=round(seconds, 3),
        versions=versions(device),
        details={
            "autograd_hits": autograd["autograd_cache_hit"],
            "autograd_misses": autograd["autograd_cache_miss"] + autograd["autograd_cache_bypass"],
        },
    )
    print(result.to_line())


if __name__ == "__main__":
    main()
