"""Kernels for the demo, of kinds that language models use. They are compiled, never launched."""

import triton
import triton.language as tl


@triton.jit
def gated_silu(x_ptr, gate_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    gate = tl.load(gate_ptr + offsets, mask=mask).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    out = gate * tl.sigmoid(gate) * x
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rms_norm(x_ptr, weight_ptr, out_ptr, stride, width, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < width
    x = tl.load(x_ptr + row * stride + offsets, mask=mask, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, 0) / width + epsilon)
    weight = tl.load(weight_ptr + offsets, mask=mask).to(tl.float32)
    out = x * scale * weight
    tl.store(out_ptr + row * stride + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_rows(x_ptr, out_ptr, stride, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < width
    x = tl.load(x_ptr + row * stride + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    x = tl.exp(x - tl.max(x, 0))
    out = x / tl.sum(x, 0)
    tl.store(out_ptr + row * stride + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    a_stride,
    b_stride,
    c_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * a_stride + inner[None, :]
    b = b_ptr + inner[:, None] * b_stride + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BLOCK_K)):
        left = k - step * BLOCK_K
        a_tile = tl.load(a, mask=inner[None, :] < left, other=0.0)
        b_tile = tl.load(b, mask=inner[:, None] < left, other=0.0)
        total = tl.dot(a_tile, b_tile, total)
        a += BLOCK_K
        b += BLOCK_K * b_stride
    c = c_ptr + rows[:, None] * c_stride + columns[None, :]
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c, total.to(c_ptr.dtype.element_ty), mask=inside)
