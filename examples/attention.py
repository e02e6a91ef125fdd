"""Attention out = softmax(Q K^T / sqrt(D)) V on Hopper, with two MMAs in flight.

A producer warp loads blocks of keys and values. Each consumer warpgroup holds 64 rows of queries. It issues the scores of the
next block before the product of this block's weights with the values, so the tensor cores work while it computes a softmax:

    S = Q K(n)            issued
    O += P(n-1) V(n-1)    issued
    wait for S            one MMA stays in flight
    P(n) = softmax(S)     meanwhile
    wait for O            then O is scaled to the new maxima

The second wait may stand behind the softmax, as here, or already behind the row maxima. weft keeps it where it is written; by
itself ptxas would issue it among the first exponentials. On an H200 the early place is 2 to 3% faster: the scaling of O then
runs between exponentials, which the special function unit computes at a quarter of the rate of multiplications. With two
consumers the MMAs of one run during the softmax of the other anyway.

    python examples/attention.py [--plot FILE] [--sim]
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import workbench
from workbench import Place

import weft
from weft import language as gl
from weft.errors import DeviceError
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from weft.nvidia.hopper import TensorDescriptor

ROWS = 64
"""Queries of a consumer."""
BLOCK = 128
"""Keys of a block."""
LOG2_E = 1.4426950408889634


@weft.jit
def make_barriers(number: gl.constexpr, count: gl.constexpr):
    bars = gl.allocate_shared_memory(gl.int64, [number, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(number):
        mbarrier.init(bars.index(i), count=count)
    return bars


@weft.jit
def load_blocks(
    q_desc, k_desc, v_desc, q_bufs, k_bufs, v_bufs, q_ready, k_ready, k_free, v_ready, v_free, head, row, blocks,
    consumers: gl.constexpr, stages: gl.constexpr,
):  # fmt: skip
    ROWS: gl.constexpr = q_desc.block_type.shape[1]
    BLOCK: gl.constexpr = k_desc.block_type.shape[1]
    mbarrier.expect(q_ready.index(0), consumers * q_desc.block_type.nbytes)
    for i in gl.static_range(consumers):
        tma.async_copy_global_to_shared(q_desc, [head, row + i * ROWS, 0], q_ready.index(0), q_bufs.index(i))
    for n in range(blocks):
        # The last block comes first: only the first one that is computed needs a mask.
        slot, phase, key = n % stages, (n // stages & 1) ^ 1, (blocks - 1 - n) * BLOCK
        mbarrier.wait(k_free.index(slot), phase)
        mbarrier.expect(k_ready.index(slot), k_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(k_desc, [head, key, 0], k_ready.index(slot), k_bufs.index(slot))
        mbarrier.wait(v_free.index(slot), phase)
        mbarrier.expect(v_ready.index(slot), v_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(v_desc, [head, key, 0], v_ready.index(slot), v_bufs.index(slot))


@weft.jit
def scores(q, k_bufs, k_ready, n, zeros, stages: gl.constexpr):
    mbarrier.wait(k_ready.index(n % stages), n // stages & 1)
    k = k_bufs.index(n % stages)
    return warpgroup_mma(q, k.reshape([k.shape[1], k.shape[2]]).permute([1, 0]), zeros, use_acc=False, is_async=True)


@weft.jit
def weighted(p, v_bufs, v_ready, n, o, stages: gl.constexpr):
    mbarrier.wait(v_ready.index(n % stages), n // stages & 1)
    v = v_bufs.index(n % stages)
    return warpgroup_mma(p, v.reshape([v.shape[1], v.shape[2]]), o, is_async=True)


@weft.jit
def attend(
    WHICH: gl.constexpr, o_desc, q_bufs, k_bufs, v_bufs, q_ready, k_ready, k_free, v_ready, v_free, head, row, blocks, keys,
    scale, stages: gl.constexpr, LATE: gl.constexpr,
):  # fmt: skip
    dtype: gl.constexpr = o_desc.dtype
    ROWS: gl.constexpr = q_bufs.shape[2]
    BLOCK: gl.constexpr = k_bufs.shape[2]
    D: gl.constexpr = q_bufs.shape[3]
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    SUM: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, SUM, 2)
    zeros = gl.zeros([ROWS, BLOCK], gl.float32, S)
    o = gl.zeros([ROWS, D], gl.float32, SUM)
    q = q_bufs.index(WHICH).reshape([ROWS, D])
    mbarrier.wait(q_ready.index(0), 0)
    s = warpgroup_mma_wait(0, scores(q, k_bufs, k_ready, 0, zeros, stages))
    mbarrier.arrive(k_free.index(0), count=1)
    last = (blocks - 1) * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(0, S))
    s = gl.where((last < keys)[None, :], s, -float("inf"))
    top = gl.max(s, axis=1)
    weights = gl.exp2(s * scale - (top * scale)[:, None])
    total = gl.sum(weights, axis=1)
    p = gl.convert_layout(weights.to(dtype), P)
    for n in range(1, blocks):
        s = scores(q, k_bufs, k_ready, n, zeros, stages)
        o = weighted(p, v_bufs, v_ready, n - 1, o, stages)
        s = warpgroup_mma_wait(1, s)
        mbarrier.arrive(k_free.index(n % stages), count=1)
        new = gl.maximum(top, gl.max(s, axis=1))
        if not LATE:
            o = warpgroup_mma_wait(0, o)
        weights = gl.exp2(s * scale - (new * scale)[:, None])
        old = gl.exp2((top - new) * scale)
        total, top = total * old + gl.sum(weights, axis=1), new
        if LATE:
            o = warpgroup_mma_wait(0, o)
        mbarrier.arrive(v_free.index((n - 1) % stages), count=1)
        o = o * gl.convert_layout(old, gl.SliceLayout(1, SUM))[:, None]
        p = gl.convert_layout(weights.to(dtype), P)
    o = warpgroup_mma_wait(0, weighted(p, v_bufs, v_ready, blocks - 1, o, stages))
    o = o / gl.convert_layout(total, gl.SliceLayout(1, SUM))[:, None]
    # The consumer's queries are not needed any more.
    q_bufs.index(WHICH).store(o.to(dtype).reshape([1, ROWS, D]))
    fence_async_shared()
    tma.async_copy_shared_to_global(o_desc, [head, row + WHICH * ROWS, 0], q_bufs.index(WHICH))
    tma.store_wait(0)


@weft.jit(fast_math=["exp2", "div"])
def attention_kernel(
    q_desc, k_desc, v_desc, o_desc, scale, consumers: gl.constexpr, stages: gl.constexpr, LATE: gl.constexpr
):  # fmt: skip
    ROWS: gl.constexpr = q_desc.block_type.shape[1]
    BLOCK: gl.constexpr = k_desc.block_type.shape[1]
    q_bufs = gl.allocate_shared_memory(q_desc.dtype, [consumers, *q_desc.block_type.shape], q_desc.layout)
    k_bufs = gl.allocate_shared_memory(k_desc.dtype, [stages, *k_desc.block_type.shape], k_desc.layout)
    v_bufs = gl.allocate_shared_memory(v_desc.dtype, [stages, *v_desc.block_type.shape], v_desc.layout)
    q_ready = make_barriers(1, 1)
    k_ready, k_free = make_barriers(stages, 1), make_barriers(stages, consumers)
    v_ready, v_free = make_barriers(stages, 1), make_barriers(stages, consumers)
    row = gl.program_id(0) * (consumers * ROWS)
    head = gl.program_id(1)
    keys = k_desc.shape[1]
    blocks = gl.cdiv(keys, BLOCK)
    bufs = (q_bufs, k_bufs, v_bufs, q_ready, k_ready, k_free, v_ready, v_free, head, row, blocks)
    load = (load_blocks, (q_desc, k_desc, v_desc, *bufs, consumers, stages))
    first = (attend, (0, o_desc, *bufs, keys, scale, stages, LATE))
    if consumers == 1:
        gl.warp_specialize([first, load], [1], [24])
    else:
        second = (attend, (1, o_desc, *bufs, keys, scale, stages, LATE))
        gl.warp_specialize([first, second, load], [4, 1], [240, 24])


def attention(Q: Any, K: Any, V: Any, out: Any, consumers: int = 2, LATE: bool = False, stages: int = 2) -> Any:
    """out = softmax(Q K^T / sqrt(D)) V of arrays [heads, length, D] of one 16-bit type, D 64 or 128; returns the compiled
    kernel. K and V have one length of at least 1, Q and out another one. `LATE`: the second wait is behind the softmax."""
    heads, length, D = Q.shape
    dtype = getattr(gl, workbench.dtype_name(Q))
    blocks = ((Q, ROWS), (K, BLOCK), (V, BLOCK), (out, ROWS))
    descriptors = [
        TensorDescriptor.from_tensor(x, [1, n, D], gl.NVMMASharedLayout.get_default_for([1, n, D], dtype))
        for x, n in blocks
    ]
    grid = (weft.cdiv(length, consumers * ROWS), heads)
    return attention_kernel[grid](*descriptors, LOG2_E / math.sqrt(D), consumers, stages, LATE, num_warps=4)


RUNS = {
    f"{consumers} consumer{'s' * (consumers - 1)}, wait behind the {place}": (consumers, LATE)
    for consumers in (1, 2)
    for place, LATE in (("row maxima", False), ("softmax", True))
}


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """One head's attention in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = q @ k.T / math.sqrt(q.shape[1])
    p = np.exp(s - s.max(axis=1, keepdims=True))
    return p @ v / p.sum(axis=1, keepdims=True)


def overlapped(compiled: Any) -> int | str:
    """The exponentials of a thread between the two waits of the loop, or a question mark without a disassembler."""
    try:
        names = re.findall(r"MUFU\.EX2|DEPBAR\.LE gsb0, 0x\d", compiled.asm["sass"])
    except DeviceError:
        return "?"
    first = names.index("DEPBAR.LE gsb0, 0x1")
    return names[first + 1 :].index("DEPBAR.LE gsb0, 0x0")


def row(place: Place, name: str) -> dict[str, Any]:
    """One line of the table: attend, check, measure."""
    consumers, LATE = RUNS[name]
    heads, length, keys, D = place.size(32, 2), place.size(4096, 100), place.size(4096, 300), place.size(128, 64)
    Q = place.random(heads, length, D, dtype="float16")
    K, V = (place.random(heads, keys, D, dtype="float16") for _ in range(2))
    out = place.poisoned(heads, length, D, dtype="float16")
    compiled = attention(Q, K, V, out, consumers, LATE)
    for head in (0, heads - 1):
        got, *given = (place.numpy(x[head]) for x in (out, Q, K, V))
        np.testing.assert_allclose(got.astype(np.float64), reference(*given), atol=2e-3)
    return {
        "attention": name,
        "exponentials between the waits": overlapped(compiled),
        "registers": compiled.n_regs,
        "TFLOP/s": place.arithmetic(lambda: attention(Q, K, V, out, consumers, LATE), 4 * heads * length * keys * D),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, name) for name in RUNS]
    workbench.report("Attention, fp16, head size 128", rows, given.place, given.plot, "registers")


if __name__ == "__main__":
    main()
