"""One persistent matmul, C = A @ B, under every schedule of `weft.kernels.schedulers`: only an argument differs.

Two consumer warpgroups compute one tile together, 64 rows each, from operands that a producer warp loads ahead. All
three roles run the same loop over the program's tiles. With `ticket` the producer takes tickets and tells the consumers which
tiles they stand for; with `split_k` and `stream_k` a tile's K is divided among programs, and the last one to finish adds the
parts and stores the tile.

    python examples/matmul_schedules.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import workbench
from matmul_parts import accumulator_layout
from workbench import Place

import weft
from weft import language as gl
from weft.kernels import schedulers
from weft.kernels.schedulers import Schedule
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from weft.nvidia.hopper import TensorDescriptor

BLOCK_M, BLOCK_K = 128, 64
ROWS = 64
"""Rows of a tile that a consumer computes."""
PIECE = 64
"""C is stored in pieces of 64x64: 128 bytes wide, one row of the widest swizzle."""


@weft.jit
def make_barriers(number: gl.constexpr, count: gl.constexpr):
    bars = mbarrier.allocate_mbarrier(batch=number)
    for i in gl.static_range(number):
        mbarrier.init(bars.index(i), count=count)
    return bars


@weft.jit
def load_tiles(a_desc, b_desc, a_bufs, b_bufs, ready, free, grid, counters, shared, num_buffers: gl.constexpr):
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    work = schedulers.begin(grid, counters, shared)
    step = 0
    while work.valid():
        work.request_next()
        row, column = work.place()
        first, end = work.steps()
        for k in range(first, end):
            slot = step % num_buffers
            mbarrier.wait(free.index(slot), (step // num_buffers & 1) ^ 1)
            bar = ready.index(slot)
            mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            tma.async_load(a_desc, [row * BLOCK_M, k * BLOCK_K], bar, a_bufs.index(slot))
            tma.async_load(b_desc, [k * BLOCK_K, column * BLOCK_N], bar, b_bufs.index(slot))
            step += 1
        work = work.next()


@weft.jit
def multiply(acc, step, count, a_bufs, b_bufs, ready, free, WHICH: gl.constexpr, num_buffers: gl.constexpr):
    # One MMA is in flight while the next one is issued; then the one before has read its buffers.
    for k in range(count):
        slot = (step + k) % num_buffers
        mbarrier.wait(ready.index(slot), (step + k) // num_buffers & 1)
        a = a_bufs.index(slot).slice(ROWS * WHICH, ROWS)
        acc = warpgroup_mma(a, b_bufs.index(slot), acc, use_acc=k > 0, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))
        mbarrier.arrive(free.index((step + k + num_buffers - 1) % num_buffers), count=1, pred=k > 0)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(free.index((step + count - 1) % num_buffers), count=1)
    return acc


@weft.jit
def store(c_desc, row, column, acc, c_bufs):
    for i in gl.static_range(acc.shape[1] // PIECE):
        # A buffer is reused when its last store has read it.
        tma.store_wait(pendings=1)
        buffer = c_bufs.index(i % 2)
        buffer.store(acc[:, i * PIECE : (i + 1) * PIECE].to(c_desc.dtype))
        fence_async_shared()
        tma.async_store(c_desc, [row, column + i * PIECE], buffer)


@weft.jit
def consume(
    c_desc, a_bufs, b_bufs, c_bufs, ready, free, grid, counters, partials, shared, WHICH: gl.constexpr,
    num_buffers: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    BLOCK_N: gl.constexpr = b_bufs.shape[2]
    work = schedulers.begin(grid, counters, shared)
    acc = gl.zeros([ROWS, BLOCK_N], gl.float32, layout=layout)
    step = 0
    while work.valid():
        row, column = work.place()
        first, end = work.steps()
        acc = multiply(acc, step, end - first, a_bufs, b_bufs, ready, free, WHICH, num_buffers)
        step += end - first
        acc, complete = schedulers.combined(work, acc, partials, counters, partition=WHICH)
        if complete:
            store(c_desc, row * BLOCK_M + ROWS * WHICH, column * BLOCK_N, acc, c_bufs)
        work = work.next()
    tma.store_wait(pendings=0)


@weft.jit
def scheduled_kernel(
    a_desc, b_desc, c_desc, counters, partials, schedule: gl.constexpr, num_buffers: gl.constexpr, layout: gl.constexpr
):
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    gl.static_assert(
        BLOCK_N % (2 * PIECE) == 0, "the first piece of a tile goes to the buffer that was used longest ago"
    )
    a_bufs = gl.allocate_shared_memory(a_desc.dtype, [num_buffers, BLOCK_M, BLOCK_K], a_desc.layout)
    b_bufs = gl.allocate_shared_memory(b_desc.dtype, [num_buffers, BLOCK_K, BLOCK_N], b_desc.layout)
    upper = gl.allocate_shared_memory(c_desc.dtype, [2, PIECE, PIECE], c_desc.layout)
    lower = gl.allocate_shared_memory(c_desc.dtype, [2, PIECE, PIECE], c_desc.layout)
    ready, free = make_barriers(num_buffers, 1), make_barriers(num_buffers, 2)
    rows, columns = gl.cdiv(c_desc.shape[0], BLOCK_M), gl.cdiv(c_desc.shape[1], BLOCK_N)
    grid = schedulers.Grid(rows, columns, gl.cdiv(a_desc.shape[1], BLOCK_K), None, schedule)
    shared = schedulers.prepare(schedule, readers=3)
    given = (ready, free, grid, counters)
    last = (partials, shared)
    gl.warp_specialize(
        [
            (consume, (c_desc, a_bufs, b_bufs, upper, *given, *last, 0, num_buffers, layout)),
            (consume, (c_desc, a_bufs, b_bufs, lower, *given, *last, 1, num_buffers, layout)),
            (load_tiles, (a_desc, b_desc, a_bufs, b_bufs, *given, shared, num_buffers)),
        ],
        [4, 1],
        [232, 40],
    )


class Scheduled:
    """C = A @ B of matrices of one 16-bit type with contiguous rows, under a schedule; launched by a call."""

    def __init__(
        self, A: Any, B: Any, C: Any, schedule: Schedule, BLOCK_N: int = 256, num_buffers: int = 4, resident: int = 0
    ) -> None:  # fmt: skip
        (M, N), K = C.shape, A.shape[1]
        dtype = getattr(gl, workbench.dtype_name(A))
        blocks = ((A, [BLOCK_M, BLOCK_K]), (B, [BLOCK_K, BLOCK_N]), (C, [PIECE, PIECE]))
        descriptors = [
            TensorDescriptor.from_tensor(x, block, gl.NVMMASharedLayout.get_default_for(block, dtype))
            for x, block in blocks
        ]
        if schedule.splits > weft.cdiv(K, BLOCK_K):
            raise ValueError(f"{schedule.splits} parts of {weft.cdiv(K, BLOCK_K)} steps along K: some would be empty")
        tiles = weft.cdiv(M, BLOCK_M) * weft.cdiv(N, BLOCK_N)
        programs = schedule.programs(tiles, resident or workbench.multiprocessors(C))
        state = schedule.state(C, tiles, programs, [ROWS, BLOCK_N], partitions=2)
        layout = accumulator_layout(dtype, ROWS, BLOCK_N, 4)
        self.launch = scheduled_kernel[(programs,)]
        self.arguments = (*descriptors, *state, schedule, num_buffers, layout)

    def __call__(self) -> Any:
        """Launch; returns the compiled kernel."""
        return self.launch(*self.arguments, num_warps=4)


SCHEDULES = {
    "static, by rows": Schedule("static", "rows"),
    "static, grouped": Schedule("static", "grouped", 16),
    "static, serpentine": Schedule("static", "serpentine", 16),
    "ticket, grouped": Schedule("ticket", "grouped", 16),
    "split-K of 2": Schedule("split_k", "grouped", 16, splits=2),
    "stream-K": Schedule("stream_k", "grouped", 16),
}


def row(place: Place, name: str) -> dict[str, Any]:
    """One line of the table: multiply, check, measure."""
    M, N, K = place.size(4096, 300), place.size(4608, 520), place.size(4096, 200)
    A, B = place.random(M, K, dtype="float16"), place.random(K, N, dtype="float16")
    C = place.poisoned(M, N, dtype="float16")
    launch = Scheduled(A, B, C, SCHEDULES[name], resident=0 if place.size(1, 0) else 4)
    compiled = launch()
    place.check_product(C, A, B)
    return {
        "schedule": name,
        "registers": compiled.n_regs,
        "TFLOP/s": place.arithmetic(launch, 2 * M * N * K),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, name) for name in SCHEDULES]
    workbench.report("Matmul, fp16, by schedule", rows, given.place, given.plot, "TFLOP/s")


if __name__ == "__main__":
    main()
