"""Matmul with weights of four bits on Hopper: out = X W^T, float16 activations X, and a scale for each 128 weights of a row.

The tensor core takes the weights as its left operand, from registers: it computes W X^T. A consumer warpgroup unpacks the
weights of a block (LOP3 and packed multiplications, no conversions), scales them, and issues their MMA. While that runs, it
unpacks those of the next block:

    acc = warpgroup_mma(dequantise(words, scales), x, acc, is_async=True)
    acc = warpgroup_mma_wait(1, acc)

The registers of an operand must not change before its MMA is complete, which here is in the next iteration. weft unrolls the
loop by two, so that operands take turns between two sets of registers. `synchronous` waits for each MMA at once instead.

    python examples/matmul_int4.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import workbench
from workbench import Place

import weft
from weft import language as gl
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from weft.nvidia.hopper import TensorDescriptor

ROWS = 64
"""Rows of the weights of a consumer."""
GROUP = 128
"""Weights under one scale, and the length of a block."""
PLACES = (0, 16, 4, 20, 8, 24, 12, 28)
"""The bits of the eight weights of a word at which they begin (`gl.int4_to_fp(..., interleaved=True)`)."""


def quantise(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights [N, K] as words [N, K / 8] and scales [K / 128, N]. K is a multiple of 128.

    A thread takes 32 weights of a row and block: those that the tensor core wants from it lie side by side."""
    n, k = weights.shape
    groups = weights.reshape(n, k // GROUP, GROUP).astype(np.float32)
    scales = (np.abs(groups).max(axis=2) / 7 + np.float32(2**-14)).astype(np.float16)
    whole = np.clip(np.rint(groups / scales[:, :, None].astype(np.float32)), -8, 7).astype(np.int64)
    # Weight 16 i + 8 j + 2 lane + k of a block belongs to lane `lane` of 4.
    order = whole.reshape(n, k // GROUP, 8, 2, 4, 2).transpose(0, 1, 4, 2, 3, 5).reshape(n, k // 8, 8)
    words = np.bitwise_or.reduce((order & 15) << np.array(PLACES), axis=2)
    return words.astype(np.uint32).view(np.int32), np.ascontiguousarray(scales.T)


def dequantised(words: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The weights [N, K] that words and scales stand for, in float64."""
    n, k = words.shape[0], words.shape[1] * 8
    four = (words.view(np.uint32)[:, :, None] >> np.array(PLACES, np.uint32) & 15).astype(np.int64)
    order = np.where(four > 7, four - 16, four).reshape(n, k // GROUP, 4, 8, 2, 2).transpose(0, 1, 3, 4, 2, 5)
    return (order.reshape(n, k // GROUP, GROUP) * scales.T[:, :, None].astype(np.float64)).reshape(n, k)


@weft.jit
def make_barriers(number: gl.constexpr, count: gl.constexpr):
    bars = gl.allocate_shared_memory(gl.int64, [number, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(number):
        mbarrier.init(bars.index(i), count=count)
    return bars


@weft.jit
def load_blocks(
    w_desc, s_desc, x_desc, w_bufs, s_bufs, x_bufs, ready, free, row, column, blocks, stages: gl.constexpr
):  # fmt: skip
    GROUP: gl.constexpr = x_desc.block_type.shape[1]
    for k in range(blocks):
        slot = k % stages
        mbarrier.wait(free.index(slot), (k // stages & 1) ^ 1)
        bar = ready.index(slot)
        mbarrier.expect(bar, w_desc.block_type.nbytes + s_desc.block_type.nbytes + x_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(w_desc, [row, k * (GROUP // 8)], bar, w_bufs.index(slot))
        tma.async_copy_global_to_shared(s_desc, [k, row], bar, s_bufs.index(slot))
        tma.async_copy_global_to_shared(x_desc, [column, k * GROUP], bar, x_bufs.index(slot))


@weft.jit
def dequantise(words, scales, operand: gl.constexpr):
    ROWS: gl.constexpr = words.shape[0]
    GROUP: gl.constexpr = words.shape[1] * 8
    four = gl.int4_to_fp(words, gl.float16, 1, interleaved=True)
    # In memory the lanes come first, so that the weights of a thread are adjacent; to the tensor core they come last but one.
    four = four.reshape([ROWS, 4, GROUP // 16, 2, 2]).permute([0, 2, 3, 1, 4]).reshape([ROWS, GROUP])
    return gl.convert_layout(four, operand, assert_trivial=True) * scales[:, None]


@weft.jit
def multiply(
    WHICH: gl.constexpr, w_bufs, s_bufs, x_bufs, out, ready, free, row, column, blocks, N, M,
    stages: gl.constexpr, SYNCHRONOUS: gl.constexpr,
):  # fmt: skip
    ROWS: gl.constexpr = 64
    COLUMNS: gl.constexpr = x_bufs.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    # Four words of two rows in each thread, as the operand's layout has them.
    packed: gl.constexpr = gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [8, 0]], [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0]], [], [ROWS, 16]
    )
    acc = gl.zeros([ROWS, COLUMNS], gl.float32, layout)
    for k in range(blocks):
        slot = k % stages
        mbarrier.wait(ready.index(slot), k // stages & 1)
        words = w_bufs.index(slot).slice(WHICH * ROWS, ROWS).load(packed)
        scales = s_bufs.index(slot).reshape([s_bufs.shape[2]]).slice(WHICH * ROWS, ROWS)
        weights = dequantise(words, scales.load(gl.SliceLayout(1, operand)), operand)
        acc = warpgroup_mma(weights, x_bufs.index(slot).permute([1, 0]), acc, is_async=not SYNCHRONOUS)
        # The next copy into these buffers must not overtake the reads of the threads.
        fence_async_shared()
        if SYNCHRONOUS:
            mbarrier.arrive(free.index(slot), count=1)
        else:
            acc = warpgroup_mma_wait(1, acc)
            mbarrier.arrive(free.index((k + stages - 1) % stages), count=1, pred=k > 0)
    if not SYNCHRONOUS:
        acc = warpgroup_mma_wait(0, acc)
    n = row + WHICH * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    m = column + gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
    gl.store(out + m[None, :] * N + n[:, None], acc.to(gl.float16), mask=(n < N)[:, None] & (m < M)[None, :])


@weft.jit
def matmul_int4_kernel(
    w_desc, s_desc, x_desc, out, N, M, consumers: gl.constexpr, stages: gl.constexpr, SYNCHRONOUS: gl.constexpr
):  # fmt: skip
    gl.static_assert(stages >= 3 or SYNCHRONOUS, "one block is multiplied, one unpacked and one loaded")
    w_bufs = gl.allocate_shared_memory(gl.int32, [stages, *w_desc.block_type.shape], w_desc.layout)
    s_bufs = gl.allocate_shared_memory(gl.float16, [stages, *s_desc.block_type.shape], s_desc.layout)
    x_bufs = gl.allocate_shared_memory(gl.float16, [stages, *x_desc.block_type.shape], x_desc.layout)
    ready, free = make_barriers(stages, 1), make_barriers(stages, consumers)
    row = gl.program_id(0) * w_desc.block_type.shape[0]
    column = gl.program_id(1) * x_desc.block_type.shape[0]
    blocks = gl.cdiv(x_desc.shape[1], x_desc.block_type.shape[1])
    bufs = (w_bufs, s_bufs, x_bufs)
    load = (load_blocks, (w_desc, s_desc, x_desc, *bufs, ready, free, row, column, blocks, stages))
    rest = (*bufs, out, ready, free, row, column, blocks, N, M, stages, SYNCHRONOUS)
    if consumers == 1:
        gl.warp_specialize([(multiply, (0, *rest)), load], [1], [24])
    else:
        gl.warp_specialize([(multiply, (0, *rest)), (multiply, (1, *rest)), load], [4, 1], [240, 24])


def matmul_int4(
    words: Any, scales: Any, X: Any, out: Any, consumers: int = 2, columns: int = 256, synchronous: bool = False
) -> Any:
    """out = X W^T of X [M, K] and `quantise(W)` of W [N, K], float16; returns the compiled kernel.

    A block computes `consumers` times 64 rows of W by `columns` rows of X. N is a multiple of 8."""
    rows, flat = consumers * ROWS, gl.NVMMASharedLayout
    w = TensorDescriptor.from_tensor(words, [rows, GROUP // 8], flat(0, 32))
    s = TensorDescriptor.from_tensor(scales, [1, rows], flat(0, 16))
    x = TensorDescriptor.from_tensor(X, [columns, GROUP], flat.get_default_for([columns, GROUP], gl.float16))
    (M, N), stages = out.shape, 3 if columns == 256 else 4
    grid = (weft.cdiv(N, rows), weft.cdiv(M, columns))
    return matmul_int4_kernel[grid](w, s, x, out, N, M, consumers, stages, synchronous, num_warps=4)


RUNS = {
    f"{consumers} consumer{'s' * (consumers - 1)}, {consumers * ROWS}x{columns}, {how}": (consumers, columns, how)
    for consumers, columns in ((1, 128), (2, 128), (2, 256))
    for how in ("synchronous", "asynchronous")
}


@cache
def random_weights(n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Quantised normal weights."""
    return quantise(np.random.default_rng().standard_normal((n, k), dtype=np.float32))


def row(place: Place, name: str) -> dict[str, Any]:
    """One line of the table: multiply, check, measure."""
    consumers, columns, how = RUNS[name]
    N, M, K = place.size(8192, 136), place.size(4096, 70), place.size(4096, 640)
    X = place.random(M, K, dtype="float16")
    host = random_weights(N, K)
    words, scales = map(place.array, host)
    out = place.poisoned(M, N, dtype="float16")
    compiled = matmul_int4(words, scales, X, out, consumers, columns, how == "synchronous")
    rows = slice(M - 64, M)
    wanted = place.numpy(X[rows]).astype(np.float64) @ dequantised(*host).T
    # The product of weight and scale is rounded to float16.
    np.testing.assert_allclose(place.numpy(out[rows]).astype(np.float64), wanted, rtol=2e-3, atol=1e-3 * wanted.std())
    return {
        "kernel": name,
        "registers": compiled.n_regs,
        "shared bytes": compiled.shared,
        "TFLOP/s": place.arithmetic(
            lambda: matmul_int4(words, scales, X, out, consumers, columns, how == "synchronous"), 2 * M * N * K
        ),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, name) for name in RUNS]
    workbench.report("Matmul with weights of four bits", rows, given.place, given.plot, "shared bytes")


if __name__ == "__main__":
    main()
