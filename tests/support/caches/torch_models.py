"""Small models for filling a real TorchInductor cache on the CPU."""

import torch
from torch import nn
from torch.nn import functional


class Mini(nn.Module):
    """One fused kernel: the smallest thing that compiles C++."""

    def __init__(self, d=64):
        super().__init__()
        self.layer = nn.Linear(d, d)

    def forward(self, x):
        return functional.gelu(self.layer(x)) + x


class MLP(nn.Module):
    def __init__(self, d=256, h=512, n=3):
        super().__init__()
        self.inp, self.out = nn.Linear(d, h), nn.Linear(h, d)
        self.mid = nn.ModuleList([nn.Linear(h, h) for _ in range(n)])
        self.norm = nn.LayerNorm(h)

    def forward(self, x):
        x = functional.gelu(self.inp(x))
        for layer in self.mid:
            x = x + functional.silu(layer(self.norm(x)))
        return torch.softmax(self.out(x), -1)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        width = d // self.heads
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, width).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * width**-0.5
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Tiny(nn.Module):
    def __init__(self, vocab=512, d=128, heads=4, n=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(n)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embed(tokens))))


def _conv_stage(inner, outer):
    return (
        nn.Conv2d(inner, outer, 3, padding=1),
        nn.BatchNorm2d(outer),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(*_conv_stage(3, 16), *_conv_stage(16, 32), *_conv_stage(32, 64))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.stages(x).mean((2, 3)))
