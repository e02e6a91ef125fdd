"""Matmul C = A @ B with warp specialization: one producer warp loads tiles, two consumer warpgroups multiply and store.

The kernels of `matmul_ladder.py` issue no MMAs during the epilogue of a tile. Here the producer warp runs ahead on its own,
so operands are in shared memory when the consumers need them. Two kernels differ in how the warpgroups share
the work:

- `cooperative`: both compute one tile of 128x256, 64 rows each. A tile of B serves both, which saves shared-memory bandwidth.
- `ping_pong`: each computes every other tile of 128x128. They alternate at the tensor cores: while one runs its epilogue, the
  other issues MMAs.

    python examples/matmul_warp_specialized.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import workbench
from matmul_parts import GroupedPersistentTileScheduler, accumulator_layout
from workbench import Place

import weft
from weft import language as gl
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from weft.nvidia.hopper import TensorDescriptor

BLOCK_K = 64
PIECE = 64
"""C is stored in pieces of 64x64: 128 bytes wide, one row of the widest swizzle."""


@weft.jit
def load_tiles(a_desc, b_desc, a_bufs, b_bufs, ready, free, scheduler, num_buffers: gl.constexpr):
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    step = 0
    for idx in range(scheduler.get_num_tiles()):
        pid_m, pid_n = scheduler.get_tile(idx)
        for k in range(0, a_desc.shape[1], BLOCK_K):
            slot = step % num_buffers
            # A buffer that was never filled is free: on a new barrier the phase before phase 0 counts as complete.
            mbarrier.wait(free.index(slot), (step // num_buffers & 1) ^ 1)
            bar = ready.index(slot)
            mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(a_desc, [pid_m * BLOCK_M, k], bar, a_bufs.index(slot))
            tma.async_copy_global_to_shared(b_desc, [k, pid_n * BLOCK_N], bar, b_bufs.index(slot))
            step += 1


@weft.jit
def multiply(
    acc, first, steps, a_bufs, b_bufs, ready, free,
    ROW: gl.constexpr, ROWS: gl.constexpr, num_buffers: gl.constexpr,
):  # fmt: skip
    # The mainloop of a tile, from step `first` on, by ROWS rows of A. One MMA is in flight while the next one is issued.
    for k in range(steps):
        step = first + k
        slot = step % num_buffers
        mbarrier.wait(ready.index(slot), step // num_buffers & 1)
        a = a_bufs.index(slot).slice(ROW, ROWS)
        acc = warpgroup_mma(a, b_bufs.index(slot), acc, use_acc=k > 0, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))
        # The MMA before has read its buffers.
        mbarrier.arrive(free.index((step + num_buffers - 1) % num_buffers), count=1, pred=k > 0)
    return acc


@weft.jit
def left_and_right(tile):
    # Different columns lie in different registers, so this moves nothing.
    return tile.reshape([tile.shape[0], 2, tile.shape[1] // 2]).permute(0, 2, 1).split()


@weft.jit
def upper_and_lower(tile):
    return tile.reshape([2, tile.shape[0] // 2, tile.shape[1]]).permute(1, 2, 0).split()


@weft.jit
def store_pair(c_desc, row, col, pair, c_bufs):
    # Two neighbouring pieces, through two buffers alternately: a buffer is reused when its last store has read it.
    pieces = left_and_right(pair)
    for i in gl.static_range(2):
        tma.store_wait(pendings=1)
        c_bufs.index(i).store(pieces[i].to(c_desc.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(c_desc, [row, col + i * c_desc.block_type.shape[1]], c_bufs.index(i))


@weft.jit
def cooperate(
    c_desc, steps, a_bufs, b_bufs, c_bufs, ready, free, turn, scheduler,
    WHICH: gl.constexpr, num_buffers: gl.constexpr, layout: gl.constexpr, trace: gl.constexpr, log,
):  # fmt: skip
    acc = gl.zeros([64, 256], gl.float32, layout=layout)
    for idx in range(scheduler.get_num_tiles()):
        first = idx * steps
        pid_m, pid_n = scheduler.get_tile(idx)
        if trace is not None and WHICH == 0:
            trace(log, idx, pid_m, pid_n, 0)
        acc = multiply(acc, first, steps, a_bufs, b_bufs, ready, free, 64 * WHICH, 64, num_buffers)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(free.index((first + steps - 1) % num_buffers), count=1)
        if trace is not None and WHICH == 0:
            trace(log, idx, pid_m, pid_n, 1)
        row = pid_m * 128 + 64 * WHICH
        left, right = left_and_right(acc)
        store_pair(c_desc, row, pid_n * 256, left, c_bufs)
        store_pair(c_desc, row, pid_n * 256 + 128, right, c_bufs)
        if trace is not None and WHICH == 0:
            trace(log, idx, pid_m, pid_n, 2)
    tma.store_wait(pendings=0)


@weft.jit
def take_turns(
    c_desc, steps, a_bufs, b_bufs, c_bufs, ready, free, turn, scheduler,
    WHICH: gl.constexpr, num_buffers: gl.constexpr, layout: gl.constexpr, trace: gl.constexpr, log,
):  # fmt: skip
    acc = gl.zeros([128, 128], gl.float32, layout=layout)
    for idx in range(WHICH, scheduler.get_num_tiles(), 2):
        # The hand-over orders a warpgroup after all phases that the other one observed. Without it a wait could be two phases
        # behind and take an old phase of the same parity for the new one. The new barrier grants the first turn.
        mbarrier.wait(turn.index(WHICH), (idx // 2 + 1 - WHICH) & 1)
        first = idx * steps
        pid_m, pid_n = scheduler.get_tile(idx)
        if trace is not None:
            trace(log, idx, pid_m, pid_n, 0)
        acc = multiply(acc, first, steps, a_bufs, b_bufs, ready, free, 0, 128, num_buffers)
        # All MMAs of this tile are issued: those of the other warpgroup may queue behind them.
        mbarrier.arrive(turn.index(1 - WHICH), count=1)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(free.index((first + steps - 1) % num_buffers), count=1)
        if trace is not None:
            trace(log, idx, pid_m, pid_n, 1)
        upper, lower = upper_and_lower(acc)
        store_pair(c_desc, pid_m * 128, pid_n * 128, upper, c_bufs)
        store_pair(c_desc, pid_m * 128 + 64, pid_n * 128, lower, c_bufs)
        if trace is not None:
            trace(log, idx, pid_m, pid_n, 2)
    tma.store_wait(pendings=0)


@weft.jit
def make_barriers(number: gl.constexpr, count: gl.constexpr):
    bars = gl.allocate_shared_memory(gl.int64, [number, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(number):
        mbarrier.init(bars.index(i), count=count)
    return bars


@weft.jit
def specialised_kernel(
    a_desc, b_desc, c_desc, consume: gl.constexpr, READERS: gl.constexpr, SchedulerImpl: gl.constexpr,
    num_buffers: gl.constexpr, layout: gl.constexpr, trace: gl.constexpr = None, log=None,
):  # fmt: skip
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    dtype: gl.constexpr = a_desc.dtype
    gl.static_assert(
        num_buffers >= 2, "a buffer is free only when the next MMA has been issued, and that one needs another buffer"
    )
    a_bufs = gl.allocate_shared_memory(dtype, [num_buffers, BLOCK_M, BLOCK_K], a_desc.layout)
    b_bufs = gl.allocate_shared_memory(dtype, [num_buffers, BLOCK_K, BLOCK_N], b_desc.layout)
    c_first = gl.allocate_shared_memory(dtype, [2, 64, 64], c_desc.layout)
    c_second = gl.allocate_shared_memory(dtype, [2, 64, 64], c_desc.layout)
    ready = make_barriers(num_buffers, 1)
    free = make_barriers(num_buffers, READERS)
    turn = make_barriers(2, 1)
    scheduler = SchedulerImpl.initialize(c_desc.shape[0], c_desc.shape[1], BLOCK_M, BLOCK_N)
    steps = gl.cdiv(a_desc.shape[1], BLOCK_K)
    gl.warp_specialize(
        [
            (consume, (c_desc, steps, a_bufs, b_bufs, c_first, ready, free, turn, scheduler, 0, num_buffers, layout,
                       trace, log)),
            (consume, (c_desc, steps, a_bufs, b_bufs, c_second, ready, free, turn, scheduler, 1, num_buffers, layout,
                       trace, log)),
            (load_tiles, (a_desc, b_desc, a_bufs, b_bufs, ready, free, scheduler, num_buffers)),
        ],
        [4, 1],
        [232, 40],
    )  # fmt: skip


def matmul_cooperative(A: Any, B: Any, C: Any, num_buffers: int = 4, GROUP_SIZE_M: int = 16, **traced: Any) -> Any:
    """C = A @ B of matrices of one 16-bit type with contiguous rows; like the other, returns the compiled kernel."""
    return _run(A, B, C, cooperate, 2, (128, 256), (64, 256), num_buffers, GROUP_SIZE_M, traced)


def matmul_ping_pong(A: Any, B: Any, C: Any, num_buffers: int = 6, GROUP_SIZE_M: int = 16, **traced: Any) -> Any:
    """C = A @ B; the warpgroups compute different tiles."""
    return _run(A, B, C, take_turns, 1, (128, 128), (128, 128), num_buffers, GROUP_SIZE_M, traced)


def _run(
    A: Any, B: Any, C: Any, consume: Any, readers: int, tile: tuple[int, int], own: tuple[int, int],
    num_buffers: int, group: int, traced: dict[str, Any],
) -> Any:  # fmt: skip
    """Launch with tiles of C of the given size, of which each warpgroup accumulates `own` rows and columns."""
    (M, N), (rows, cols) = C.shape, tile
    dtype = getattr(gl, workbench.dtype_name(A))
    blocks = ((A, [rows, BLOCK_K]), (B, [BLOCK_K, cols]), (C, [PIECE, PIECE]))
    descriptors = [
        TensorDescriptor.from_tensor(matrix, block, gl.NVMMASharedLayout.get_default_for(block, dtype))
        for matrix, block in blocks
    ]
    programs = min(workbench.multiprocessors(C), weft.cdiv(M, rows) * weft.cdiv(N, cols))
    constants = (consume, readers, GroupedPersistentTileScheduler(group), num_buffers)
    layout = accumulator_layout(dtype, *own, 4)
    return specialised_kernel[(programs,)](*descriptors, *constants, layout, num_warps=4, **traced)


RUNS = {"cooperative": matmul_cooperative, "ping-pong": matmul_ping_pong}


def row(place: Place, name: str) -> dict[str, Any]:
    """One line of the table: multiply, check, measure."""
    M, N, K = place.size(8192, 300), place.size(8192, 520), place.size(4096, 200)
    A, B = place.random(M, K, dtype="float16"), place.random(K, N, dtype="float16")
    C = place.poisoned(M, N, dtype="float16")
    compiled = RUNS[name](A, B, C)
    place.check_product(C, A, B)
    return {
        "kernel": name,
        "buffers": compiled.request.arguments["num_buffers"].value,
        "shared bytes": compiled.shared,
        "registers": compiled.n_regs,
        "TFLOP/s": place.arithmetic(lambda: RUNS[name](A, B, C), 2 * M * N * K),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, name) for name in RUNS]
    workbench.report("Matmul, fp16, warp-specialized", rows, given.place, given.plot, "shared bytes")


if __name__ == "__main__":
    main()
