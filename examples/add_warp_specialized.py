"""Elementwise addition with warp specialization: a producer warp loads tiles, four warps add, an epilogue warp stores.

The three partitions share no barrier of the block. They hand buffers over through mbarriers: `ready` when a tile has landed,
`free` when it has been read; `done` when a result is in its buffer, `taken` when TMA has read it.
Each partition counts its own steps, and the step gives the parity of the phase to wait for. Tiles are assigned round-robin in
memory order, to a persistent grid of programs.

    python examples/add_warp_specialized.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import workbench
from workbench import Place

import weft
from weft import language as gl
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor


@weft.jit
def place_of(step, across, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr):
    tile = gl.program_id(0) + step * gl.num_programs(0)
    return tile // across * XBLOCK, tile % across * YBLOCK


@weft.jit
def load_tiles(a_desc, b_desc, a_smem, b_smem, ready, free, tiles, across, num_buffers: gl.constexpr):
    XBLOCK: gl.constexpr = a_desc.block_type.shape[0]
    YBLOCK: gl.constexpr = a_desc.block_type.shape[1]
    for step in range(gl.cdiv(tiles - gl.program_id(0), gl.num_programs(0))):
        row, col = place_of(step, across, XBLOCK, YBLOCK)
        slot = step % num_buffers
        # A buffer that was never filled is free: on a new barrier the phase before phase 0 counts as complete.
        mbarrier.wait(free.index(slot), (step // num_buffers & 1) ^ 1)
        bar = ready.index(slot)
        mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(a_desc, [row, col], bar, a_smem.index(slot))
        tma.async_copy_global_to_shared(b_desc, [row, col], bar, b_smem.index(slot))


@weft.jit
def add_tiles(
    a_smem, b_smem, c_smem, ready, free, done, taken, tiles,
    num_buffers: gl.constexpr, num_stores: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    for step in range(gl.cdiv(tiles - gl.program_id(0), gl.num_programs(0))):
        slot = step % num_buffers
        mbarrier.wait(ready.index(slot), step // num_buffers & 1)
        x = a_smem.index(slot).load(layout)
        y = b_smem.index(slot).load(layout)
        # TMA overwrites this buffer next, through the async proxy: fence the reads before the arrival that releases it.
        fence_async_shared()
        mbarrier.arrive(free.index(slot), count=1)
        out = step % num_stores
        mbarrier.wait(taken.index(out), (step // num_stores & 1) ^ 1)
        c_smem.index(out).store(x + y)
        fence_async_shared()
        mbarrier.arrive(done.index(out), count=1)


@weft.jit
def store_tiles(c_desc, c_smem, done, taken, tiles, across, num_stores: gl.constexpr):
    XBLOCK: gl.constexpr = c_desc.block_type.shape[0]
    YBLOCK: gl.constexpr = c_desc.block_type.shape[1]
    for step in range(gl.cdiv(tiles - gl.program_id(0), gl.num_programs(0))):
        row, col = place_of(step, across, XBLOCK, YBLOCK)
        mbarrier.wait(done.index(step % num_stores), step // num_stores & 1)
        tma.async_copy_shared_to_global(c_desc, [row, col], c_smem.index(step % num_stores))
        # The sources of all but the latest stores have been read, so the oldest buffer is free.
        tma.store_wait(pendings=num_stores - 1)
        oldest = step - (num_stores - 1)
        mbarrier.arrive(taken.index((step + 1) % num_stores), count=1, pred=oldest >= 0)
    tma.store_wait(pendings=0)


@weft.jit
def add_warp_specialized(
    a_desc, b_desc, c_desc, tiles, across, num_buffers: gl.constexpr, num_stores: gl.constexpr, layout: gl.constexpr
):
    XBLOCK: gl.constexpr = a_desc.block_type.shape[0]
    YBLOCK: gl.constexpr = a_desc.block_type.shape[1]
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [num_buffers, XBLOCK, YBLOCK], a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [num_buffers, XBLOCK, YBLOCK], b_desc.layout)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, [num_stores, XBLOCK, YBLOCK], c_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [num_buffers, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [num_buffers, 1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [num_stores, 1], mbarrier.MBarrierLayout())
    taken = gl.allocate_shared_memory(gl.int64, [num_stores, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(num_buffers):
        mbarrier.init(ready.index(slot), count=1)
        mbarrier.init(free.index(slot), count=1)
    for slot in gl.static_range(num_stores):
        mbarrier.init(done.index(slot), count=1)
        mbarrier.init(taken.index(slot), count=1)
    gl.warp_specialize(
        [
            (add_tiles, (a_smem, b_smem, c_smem, ready, free, done, taken, tiles, num_buffers, num_stores, layout)),
            (load_tiles, (a_desc, b_desc, a_smem, b_smem, ready, free, tiles, across, num_buffers)),
            (store_tiles, (c_desc, c_smem, done, taken, tiles, across, num_stores)),
        ],
        [1, 1],
        [24, 24],
    )


def run(
    a: Any,
    b: Any,
    c: Any,
    XBLOCK: int = 8,
    YBLOCK: int = 256,
    num_buffers: int = 3,
    num_stores: int = 2,
    num_warps: int = 4,
    vec: int = 4,
    programs: int = 396,
    swizzle: int = 0,
    flat: bool = True,
    maxnreg: int | None = 80,
) -> Any:
    """c = a + b on up to `programs` programs with `num_warps` consumer warps each; returns the compiled kernel.

    `maxnreg` is the launch's registers per thread, which `setmaxnreg` then redistributes; it limits the occupancy.

    With `flat`, contiguous matrices whose size YBLOCK divides are added as matrices of YBLOCK columns: a tile is then
    contiguous. `swizzle` is that of tiles in shared memory, in bytes; with 0 one TMA instruction copies up to 256 columns.
    """
    matrices, tiles, across = workbench.tiled((a, b, c), XBLOCK, YBLOCK, flat)
    smem = gl.NVMMASharedLayout(swizzle_byte_width=swizzle, element_bitwidth=32, rank=2)
    descriptors = [TensorDescriptor.from_tensor(matrix, [XBLOCK, YBLOCK], smem) for matrix in matrices]
    layout = gl.BlockedLayout(*workbench.lanes_along_rows((XBLOCK, YBLOCK), num_warps, vec))
    grid = (min(programs, tiles),)
    return add_warp_specialized[grid](
        *descriptors, tiles, across, num_buffers, num_stores, layout, num_warps=num_warps, maxnreg=maxnreg
    )


POINTS: tuple[dict[str, Any], ...] = (
    {"XBLOCK": 32, "YBLOCK": 64, "num_buffers": 2, "num_stores": 1, "swizzle": 128, "flat": False},
    {"XBLOCK": 32, "YBLOCK": 64, "swizzle": 128, "flat": False},
    {"XBLOCK": 64, "YBLOCK": 128, "num_stores": 1, "programs": 132, "swizzle": 128, "flat": False},
    {},
)


def row(place: Place, point: dict[str, Any]) -> dict[str, Any]:
    """One line of the table: add, check, measure."""
    rows, cols = place.size(32768, 70), place.size(32768, 200)
    a, b, c = place.random(rows, cols), place.random(rows, cols), place.poisoned(rows, cols)
    # Few programs in the simulator, so that each uses its ring of buffers more than once.
    point = point if place.gpu else {**point, "programs": 2}
    compiled = run(a, b, c, **point)
    place.check(c, a + b)
    constants = {name: value.value for name, value in compiled.request.arguments.items() if hasattr(value, "value")}
    return {
        "tile": f"{point.get('XBLOCK', 8)}x{point.get('YBLOCK', 256)}",
        "buffers": f"{constants['num_buffers']} + {constants['num_stores']}",
        "shared bytes": compiled.shared,
        "registers": compiled.n_regs,
        "TB/s": place.throughput(lambda: run(a, b, c, **point), 3 * rows * cols * 4),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, point) for point in POINTS]
    workbench.report("Elementwise addition, warp-specialized", rows, given.place, given.plot, "shared bytes")


if __name__ == "__main__":
    main()
