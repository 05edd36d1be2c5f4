"""Small Triton kernels that fill a real Triton cache; they are compiled, never launched."""

import triton
import triton.language as tl


@triton.jit
def vec_add(x_ptr, y_ptr, o_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = offs < n
    tl.store(o_ptr + offs, tl.load(x_ptr + offs, mask=m) + tl.load(y_ptr + offs, mask=m), mask=m)


@triton.jit
def silu_mul(x_ptr, g_ptr, o_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = offs < n
    g = tl.load(g_ptr + offs, mask=m).to(tl.float32)
    x = tl.load(x_ptr + offs, mask=m).to(tl.float32)
    tl.store(o_ptr + offs, (g * tl.sigmoid(g) * x).to(o_ptr.dtype.element_ty), mask=m)


@triton.jit
def softmax_row(x_ptr, o_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    m = offs < n
    x = tl.load(x_ptr + row * stride + offs, mask=m, other=-float("inf")).to(tl.float32)
    x = tl.exp(x - tl.max(x, 0))
    tl.store(o_ptr + row * stride + offs, (x / tl.sum(x, 0)).to(o_ptr.dtype.element_ty), mask=m)


@triton.jit
def rms_norm(x_ptr, w_ptr, o_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    m = offs < n
    x = tl.load(x_ptr + row * stride + offs, mask=m, other=0.0).to(tl.float32)
    r = 1.0 / tl.sqrt(tl.sum(x * x, 0) / n + eps)
    w = tl.load(w_ptr + offs, mask=m).to(tl.float32)
    tl.store(o_ptr + row * stride + offs, (x * r * w).to(o_ptr.dtype.element_ty), mask=m)


@triton.jit
def layer_norm(x_ptr, w_ptr, b_ptr, o_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    m = offs < n
    x = tl.load(x_ptr + row * stride + offs, mask=m, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / n
    d = tl.where(m, x - mean, 0.0)
    r = 1.0 / tl.sqrt(tl.sum(d * d, 0) / n + eps)
    w = tl.load(w_ptr + offs, mask=m).to(tl.float32)
    b = tl.load(b_ptr + offs, mask=m).to(tl.float32)
    tl.store(o_ptr + row * stride + offs, (d * r * w + b).to(o_ptr.dtype.element_ty), mask=m)


@triton.jit
def rotary(x_ptr, c_ptr, s_ptr, o_ptr, stride, HALF: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, HALF)
    c = tl.load(c_ptr + row * HALF + offs)
    s = tl.load(s_ptr + row * HALF + offs)
    a = tl.load(x_ptr + row * stride + offs).to(tl.float32)
    b = tl.load(x_ptr + row * stride + HALF + offs).to(tl.float32)
    tl.store(o_ptr + row * stride + offs, (a * c - b * s).to(o_ptr.dtype.element_ty))
    tl.store(o_ptr + row * stride + HALF + offs, (b * c + a * s).to(o_ptr.dtype.element_ty))


@triton.jit
def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    sam,
    sbk,
    scm,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a = a_ptr + rm[:, None] * sam + rk[None, :]
    b = b_ptr + rk[:, None] * sbk + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        acc = tl.dot(
            tl.load(a, mask=rk[None, :] < K - k * BK, other=0.0),
            tl.load(b, mask=rk[:, None] < K - k * BK, other=0.0),
            acc,
        )
        a += BK
        b += BK * sbk
    c = c_ptr + rm[:, None] * scm + rn[None, :]
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def attn_fwd(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    sq,
    sk,
    L,
    scale,
    BM: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
):
    h = tl.program_id(1)
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rd = tl.arange(0, D)
    q = tl.load(q_ptr + h * sq + rm[:, None] * D + rd[None, :], mask=rm[:, None] < L, other=0.0)
    mi = tl.full((BM,), -float("inf"), tl.float32)
    li = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for n in range(0, L, BN):
        kmask = (n + rn) < L
        k = tl.load(
            k_ptr + h * sk + (n + rn)[None, :] * D + rd[:, None], mask=kmask[None, :], other=0.0
        )
        v = tl.load(
            v_ptr + h * sk + (n + rn)[:, None] * D + rd[None, :], mask=kmask[:, None], other=0.0
        )
        s = tl.where(kmask[None, :], tl.dot(q, k) * scale, -float("inf"))
        mn = tl.maximum(mi, tl.max(s, 1))
        p = tl.exp(s - mn[:, None])
        a = tl.exp(mi - mn)
        li = li * a + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * a[:, None])
        mi = mn
    tl.store(
        o_ptr + h * sq + rm[:, None] * D + rd[None, :],
        (acc / li[:, None]).to(o_ptr.dtype.element_ty),
        mask=rm[:, None] < L,
    )
