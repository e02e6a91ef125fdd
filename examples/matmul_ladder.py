"""Matmul C = A @ B on tensor cores, in three versions: each adds one idea to the one before.

- `matmul_pipelined`: one program per tile of C. TMA loads and asynchronous MMAs overlap within a tile.
- `persistent_matmul`: a persistent grid; each program computes tile after tile, in an order that a scheduler gives.
- `persistent_matmul_pipelined`: loads of the next tile are issued among the last MMAs of this one, and its result is
  stored while the next tile is computed. With four buffers there is no room for a tile of C next to them: the result is
  stored through buffers of B that are free at that moment.

The kernels take two classes as constexpr arguments: the accumulator and the tile scheduler. The same kernel works on two
generations: `WGMMA` accumulates in the registers of Hopper's warps, `MMAv5` in Blackwell's tensor memory, and both have the
same methods. With `trace`, a function is called for every tile at the start of its mainloop, when its MMAs are complete, and
after its store was issued (`matmul_timeline.py`).

    python examples/matmul_ladder.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import workbench
from matmul_parts import GroupedPersistentTileScheduler, Operands, PersistentTileScheduler, select_mma_impl
from workbench import Place

import weft
from weft import language as gl
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor


@weft.jit
def make_barriers(count: gl.constexpr):
    bars = gl.allocate_shared_memory(gl.int64, [count, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(count):
        mbarrier.init(bars.index(slot), count=1)
    return bars


@weft.jit
def multiply(operands, producer, consumer, mma, off_m, off_n, K, BLOCK_K: gl.constexpr, num_buffers: gl.constexpr):
    # Loads run num_buffers - 2 steps ahead: an MMA reads one buffer, and the next load fills one that no MMA reads any more.
    for k in gl.static_range(0, BLOCK_K * (num_buffers - 2), BLOCK_K):
        producer = operands.issue_loads(producer, off_m, off_n, k)
    for k in range(BLOCK_K * (num_buffers - 2), K, BLOCK_K):
        producer = operands.issue_loads(producer, off_m, off_n, k)
        consumer, mma = operands.issue_mma(consumer, mma)
    for _ in gl.static_range(num_buffers - 2):
        consumer, mma = operands.issue_mma(consumer, mma)
    return producer, consumer, mma.wait_num_outstanding(0)


@weft.jit
def store(c_desc, off_m, off_n, c):
    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    c_smem.store(c)
    fence_async_shared()
    tma.async_copy_shared_to_global(c_desc, [off_m, off_n], c_smem)
    tma.store_wait(pendings=0)


@weft.jit
def matmul_pipelined_kernel(
    a_desc, b_desc, c_desc, MMAImpl: gl.constexpr, num_buffers: gl.constexpr, num_warps: gl.constexpr,
    trace: gl.constexpr = None, log=None,
):  # fmt: skip
    BLOCK_M: gl.constexpr = c_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = c_desc.block_type.shape[1]
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    dtype: gl.constexpr = a_desc.dtype
    K = a_desc.shape[1]
    gl.static_assert(num_buffers >= 2, "a load and an MMA at a time need two buffers")
    operands = Operands.allocate(a_desc, b_desc, make_barriers(num_buffers), num_buffers, num_buffers)
    mma = MMAImpl.initialize(dtype, BLOCK_M, BLOCK_N, num_warps)
    producer = 0
    consumer = 0
    pid_m = gl.program_id(0)
    pid_n = gl.program_id(1)
    off_m = pid_m * BLOCK_M
    off_n = pid_n * BLOCK_N
    if trace is not None:
        trace(log, 0, pid_m, pid_n, 0)
    producer, consumer, mma = multiply(operands, producer, consumer, mma, off_m, off_n, K, BLOCK_K, num_buffers)
    if trace is not None:
        trace(log, 0, pid_m, pid_n, 1)
    # The operands are dead here, so the tile of C gets their shared memory.
    c, mma = mma.take_result()
    store(c_desc, off_m, off_n, c.to(dtype))
    if trace is not None:
        trace(log, 0, pid_m, pid_n, 2)


@weft.jit
def persistent_matmul_kernel(
    a_desc, b_desc, c_desc, MMAImpl: gl.constexpr, SchedulerImpl: gl.constexpr,
    num_buffers: gl.constexpr, num_warps: gl.constexpr, trace: gl.constexpr = None, log=None,
):  # fmt: skip
    BLOCK_M: gl.constexpr = c_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = c_desc.block_type.shape[1]
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    dtype: gl.constexpr = a_desc.dtype
    K = a_desc.shape[1]
    gl.static_assert(num_buffers >= 2, "a load and an MMA at a time need two buffers")
    # Barriers, counters and accumulator are carried from tile to tile.
    bars = make_barriers(num_buffers)
    mma = MMAImpl.initialize(dtype, BLOCK_M, BLOCK_N, num_warps)
    producer = 0
    consumer = 0
    scheduler = SchedulerImpl.initialize(c_desc.shape[0], c_desc.shape[1], BLOCK_M, BLOCK_N)
    for idx in range(scheduler.get_num_tiles()):
        pid_m, pid_n = scheduler.get_tile(idx)
        off_m = pid_m * BLOCK_M
        off_n = pid_n * BLOCK_N
        if trace is not None:
            trace(log, idx, pid_m, pid_n, 0)
        # Allocated in the loop, the operands and the tile of C are not live at the same time, and share memory.
        operands = Operands.allocate(a_desc, b_desc, bars, num_buffers, num_buffers)
        producer, consumer, mma = multiply(operands, producer, consumer, mma, off_m, off_n, K, BLOCK_K, num_buffers)
        if trace is not None:
            trace(log, idx, pid_m, pid_n, 1)
        c, mma = mma.take_result()
        store(c_desc, off_m, off_n, c.to(dtype))
        if trace is not None:
            trace(log, idx, pid_m, pid_n, 2)


@weft.jit
def borrow(b_buf, c_desc):
    return b_buf.reinterpret(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)


@weft.jit
def store_stolen(c_desc, off_m, off_n, c, b_bufs, free, num_b_buffers: gl.constexpr):
    # Through the buffer `free` of B, or in halves through that and the one after it, which may be the first.
    PIECE_N: gl.constexpr = c_desc.block_type.shape[1]
    left_smem = borrow(b_bufs.index(free % num_b_buffers), c_desc)
    if c.shape[1] == PIECE_N:
        left_smem.store(c)
        fence_async_shared()
        tma.async_copy_shared_to_global(c_desc, [off_m, off_n], left_smem)
    else:
        right_smem = borrow(b_bufs.index((free + 1) % num_b_buffers), c_desc)
        left, right = c.reshape([c.shape[0], 2, PIECE_N]).permute(0, 2, 1).split()
        left_smem.store(left)
        right_smem.store(right)
        fence_async_shared()
        tma.async_copy_shared_to_global(c_desc, [off_m, off_n], left_smem)
        tma.async_copy_shared_to_global(c_desc, [off_m, off_n + PIECE_N], right_smem)


@weft.jit
def persistent_matmul_pipelined_kernel(
    a_desc, b_desc, c_desc, MMAImpl: gl.constexpr, SchedulerImpl: gl.constexpr,
    num_buffers: gl.constexpr, STEALB: gl.constexpr, num_warps: gl.constexpr, trace: gl.constexpr = None, log=None,
):  # fmt: skip
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    num_b_buffers: gl.constexpr = num_buffers + STEALB
    dtype: gl.constexpr = a_desc.dtype
    K = a_desc.shape[1]
    gl.static_assert(num_buffers >= 3, "loads that cross to the next tile need three buffers")
    operands = Operands.allocate(a_desc, b_desc, make_barriers(num_buffers), num_buffers, num_b_buffers)
    if not STEALB:
        c_smem = gl.allocate_shared_memory(dtype, c_desc.block_type.shape, c_desc.layout)
    mma = MMAImpl.initialize(dtype, BLOCK_M, BLOCK_N, num_warps)
    producer = 0
    consumer = 0
    scheduler = SchedulerImpl.initialize(c_desc.shape[0], c_desc.shape[1], BLOCK_M, BLOCK_N)
    num_tiles = scheduler.get_num_tiles()
    # Prologue: the first loads of the first tile. Those of later tiles are issued at the end of the tile before.
    pid_m, pid_n = scheduler.get_tile(0)
    off_m = pid_m * BLOCK_M
    off_n = pid_n * BLOCK_N
    for k in gl.static_range(0, BLOCK_K * (num_buffers - 1), BLOCK_K):
        producer = operands.issue_loads(producer, off_m, off_n, k, num_tiles > 0)
    for idx in range(num_tiles):
        if trace is not None:
            trace(log, idx, pid_m, pid_n, 0)
        consumer, mma = operands.issue_mma(consumer, mma)
        if STEALB:
            # The loads from here on fill the buffers through which the tile before is stored.
            tma.store_wait(pendings=0)
        for k in range(BLOCK_K * (num_buffers - 1), K, BLOCK_K):
            producer = operands.issue_loads(producer, off_m, off_n, k)
            consumer, mma = operands.issue_mma(consumer, mma)
        done_m = off_m
        done_n = off_n
        # The next tile's first loads, if there is a next tile, among the last MMAs of this one.
        pid_m, pid_n = scheduler.get_tile(idx + 1)
        off_m = pid_m * BLOCK_M
        off_n = pid_n * BLOCK_N
        more = idx + 1 < num_tiles
        for k in gl.static_range(0, BLOCK_K * (num_buffers - 2), BLOCK_K):
            producer = operands.issue_loads(producer, off_m, off_n, k, more)
            consumer, mma = operands.issue_mma(consumer, mma)
        producer = operands.issue_loads(producer, off_m, off_n, BLOCK_K * (num_buffers - 2), more)
        mma = mma.wait_num_outstanding(0)
        if trace is not None:
            trace(log, idx, pid_m, pid_n, 1)
        c, mma = mma.take_result()
        if STEALB:
            store_stolen(c_desc, done_m, done_n, c.to(dtype), operands.b_bufs, producer, num_b_buffers)
        else:
            tma.store_wait(pendings=0)
            c_smem.store(c.to(dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(c_desc, [done_m, done_n], c_smem)
        if trace is not None:
            trace(log, idx, pid_m, pid_n, 2)
    tma.store_wait(pendings=0)


def describe(A: Any, B: Any, C: Any, BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, C_N: int) -> list[TensorDescriptor]:
    """Descriptors of the three matrices, of one 16-bit type and with contiguous rows; C in blocks of BLOCK_M x C_N."""
    blocks = ((A, [BLOCK_M, BLOCK_K]), (B, [BLOCK_K, BLOCK_N]), (C, [BLOCK_M, C_N]))
    dtype = getattr(gl, workbench.dtype_name(A))
    return [
        TensorDescriptor.from_tensor(matrix, block, gl.NVMMASharedLayout.get_default_for(block, dtype))
        for matrix, block in blocks
    ]


def matmul_pipelined(
    A: Any, B: Any, C: Any, BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, num_buffers: int, num_warps: int, **traced: Any,
) -> Any:  # fmt: skip
    """C = A @ B, one program per tile; like the others, returns the compiled kernel."""
    M, N = C.shape
    descriptors = describe(A, B, C, BLOCK_M, BLOCK_N, BLOCK_K, BLOCK_N)
    grid = (weft.cdiv(M, BLOCK_M), weft.cdiv(N, BLOCK_N))
    return matmul_pipelined_kernel[grid](*descriptors, select_mma_impl(), num_buffers, num_warps=num_warps, **traced)


def persistent_matmul(
    A: Any, B: Any, C: Any, BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, num_buffers: int, num_warps: int,
    SchedulerImpl: Any, **traced: Any,
) -> Any:  # fmt: skip
    """C = A @ B, one program per multiprocessor."""
    descriptors = describe(A, B, C, BLOCK_M, BLOCK_N, BLOCK_K, BLOCK_N)
    grid = (_programs(C, BLOCK_M, BLOCK_N),)
    return persistent_matmul_kernel[grid](
        *descriptors, select_mma_impl(), SchedulerImpl, num_buffers, num_warps=num_warps, **traced
    )


def persistent_matmul_pipelined(
    A: Any, B: Any, C: Any, BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, num_buffers: int, num_warps: int,
    SchedulerImpl: Any, **traced: Any,
) -> Any:  # fmt: skip
    """C = A @ B, one program per multiprocessor, with overlapping tiles; four buffers store results through buffers of B.

    Raises ValueError if a tile of C does not fit in two of them."""
    steal = num_buffers == 4
    if steal and BLOCK_M > 2 * BLOCK_K:
        raise ValueError(f"a tile of {BLOCK_M}x{BLOCK_N} does not fit in two of {BLOCK_K}x{BLOCK_N}")
    C_N = BLOCK_N // 2 if steal and BLOCK_M > BLOCK_K else BLOCK_N
    descriptors = describe(A, B, C, BLOCK_M, BLOCK_N, BLOCK_K, C_N)
    grid = (_programs(C, BLOCK_M, BLOCK_N),)
    return persistent_matmul_pipelined_kernel[grid](
        *descriptors, select_mma_impl(), SchedulerImpl, num_buffers, STEALB=steal, num_warps=num_warps, **traced
    )


def _programs(C: Any, BLOCK_M: int, BLOCK_N: int) -> int:
    M, N = C.shape
    return min(workbench.multiprocessors(C), weft.cdiv(M, BLOCK_M) * weft.cdiv(N, BLOCK_N))


RUNGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "pipelined": (matmul_pipelined, {}),
    "persistent": (persistent_matmul, {"SchedulerImpl": PersistentTileScheduler}),
    "persistent, grouped": (persistent_matmul, {"SchedulerImpl": GroupedPersistentTileScheduler(8)}),
    "persistent, pipelined": (persistent_matmul_pipelined, {"SchedulerImpl": PersistentTileScheduler}),
    "persistent, pipelined, grouped": (
        persistent_matmul_pipelined, {"SchedulerImpl": GroupedPersistentTileScheduler(8)}
    ),
    "persistent, pipelined, stolen": (
        persistent_matmul_pipelined, {"SchedulerImpl": PersistentTileScheduler, "num_buffers": 4}
    ),
}  # fmt: skip


def row(place: Place, name: str) -> dict[str, Any]:
    """One line of the table: multiply, check, measure."""
    M, N, K = place.size(8192, 200), place.size(8192, 328), place.size(4096, 160)
    function, settings = RUNGS[name]
    tile = {"BLOCK_M": place.size(128, 64), "BLOCK_N": place.size(256, 64), "BLOCK_K": 64}
    settings = {**tile, "num_buffers": 3, "num_warps": place.size(8, 4), **settings}
    A, B = place.random(M, K, dtype="float16"), place.random(K, N, dtype="float16")
    C = place.poisoned(M, N, dtype="float16")
    compiled = function(A, B, C, **settings)
    place.check_product(C, A, B)
    return {
        "kernel": name,
        "buffers": settings["num_buffers"],
        "shared bytes": compiled.shared,
        "registers": compiled.n_regs,
        "TFLOP/s": place.arithmetic(lambda: function(A, B, C, **settings), 2 * M * N * K),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, name) for name in RUNGS]
    workbench.report("Matmul, fp16", rows, given.place, given.plot, "shared bytes")


if __name__ == "__main__":
    main()
