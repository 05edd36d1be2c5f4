"""Kernels in the CuTe DSL; they are compiled, and launched only to fail."""

import cutlass
import cutlass.cute as cute


@cute.kernel
def axpy_k(x: cute.Tensor, y: cute.Tensor, a: cutlass.Constexpr, n: cutlass.Int32):
    tx, _, _ = cute.arch.thread_idx()
    bx, _, _ = cute.arch.block_idx()
    bd, _, _ = cute.arch.block_dim()
    i = bx * bd + tx
    if i < n:
        y[i] = y[i] + x[i] * a


@cute.jit
def axpy(x: cute.Tensor, y: cute.Tensor, a: cutlass.Constexpr, n: cutlass.Int32):
    axpy_k(x, y, a, n).launch(grid=((n + 255) // 256, 1, 1), block=(256, 1, 1))


@cute.kernel
def relu2d_k(x: cute.Tensor, y: cute.Tensor):
    tx, _, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    v = x[by, bx * 128 + tx]
    y[by, bx * 128 + tx] = v if v > 0 else v * 0


@cute.jit
def relu2d(x: cute.Tensor, y: cute.Tensor):
    relu2d_k(x, y).launch(grid=(x.shape[1] // 128, x.shape[0], 1), block=(128, 1, 1))
