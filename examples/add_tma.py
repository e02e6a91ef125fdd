"""Elementwise addition through TMA: loads run ahead, and a store is waited for only when its buffer is needed again.

Shared memory has room for `num_buffers` tiles of `a` and of `b`, each pair with an mbarrier. Loads fill a pair and complete its
barrier's phase, which the addition waits for; by then the loads of the next tiles are in flight. Results are stored through
`num_stores` buffers. Two kernels take the tiles in two orders:

- `add_bands`: a program walks along a band of XBLOCK rows. Programs are far apart, and each accesses XBLOCK rows of memory.
- `add_dealt`: tiles are assigned round-robin in memory order, to a persistent grid of programs. Over `flat` matrices, whose
  rows are as long as a tile is wide, all programs together sweep through memory from front to back.

    python examples/add_tma.py [--plot FILE] [--sim]
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
def start_loads(step, row, col, wanted, a_desc, b_desc, a_smem, b_smem, bars, num_buffers: gl.constexpr):
    slot = step % num_buffers
    bar = bars.index(slot)
    mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes, pred=wanted)
    tma.async_copy_global_to_shared(a_desc, [row, col], bar, a_smem.index(slot), pred=wanted)
    tma.async_copy_global_to_shared(b_desc, [row, col], bar, b_smem.index(slot), pred=wanted)


@weft.jit
def add_tile(
    step, row, col, c_desc, a_smem, b_smem, c_smem, bars,
    num_buffers: gl.constexpr, num_stores: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    slot = step % num_buffers
    # The barrier of a slot completes one phase per use of the slot, so its parity changes every `num_buffers` steps.
    mbarrier.wait(bars.index(slot), step // num_buffers & 1)
    total = a_smem.index(slot).load(layout) + b_smem.index(slot).load(layout)
    out = c_smem.index(step % num_stores)
    # The last store from this buffer has been read when at most the later stores are pending.
    tma.store_wait(pendings=num_stores - 1)
    out.store(total)
    fence_async_shared()
    tma.async_copy_shared_to_global(c_desc, [row, col], out)


@weft.jit
def add_bands(
    a_desc, b_desc, c_desc, cols,
    XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, num_buffers: gl.constexpr, num_stores: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [num_buffers, XBLOCK, YBLOCK], a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [num_buffers, XBLOCK, YBLOCK], b_desc.layout)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, [num_stores, XBLOCK, YBLOCK], c_desc.layout)
    bars = gl.allocate_shared_memory(gl.int64, [num_buffers, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(num_buffers):
        mbarrier.init(bars.index(slot), count=1)
    row = gl.program_id(0) * XBLOCK
    steps = gl.cdiv(cols, YBLOCK)
    for step in gl.static_range(num_buffers - 1):
        start_loads(step, row, step * YBLOCK, step < steps, a_desc, b_desc, a_smem, b_smem, bars, num_buffers)
    for step in range(steps):
        ahead = step + num_buffers - 1
        start_loads(ahead, row, ahead * YBLOCK, ahead < steps, a_desc, b_desc, a_smem, b_smem, bars, num_buffers)
        add_tile(step, row, step * YBLOCK, c_desc, a_smem, b_smem, c_smem, bars, num_buffers, num_stores, layout)
    for slot in gl.static_range(num_buffers):
        mbarrier.invalidate(bars.index(slot))
    tma.store_wait(pendings=0)


@weft.jit
def dealt(step, across, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr):
    tile = gl.program_id(0) + step * gl.num_programs(0)
    return tile, tile // across * XBLOCK, tile % across * YBLOCK


@weft.jit
def add_dealt(
    a_desc, b_desc, c_desc, tiles, across,
    XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, num_buffers: gl.constexpr, num_stores: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [num_buffers, XBLOCK, YBLOCK], a_desc.layout)
    b_smem = gl.allocate_shared_memory(b_desc.dtype, [num_buffers, XBLOCK, YBLOCK], b_desc.layout)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, [num_stores, XBLOCK, YBLOCK], c_desc.layout)
    bars = gl.allocate_shared_memory(gl.int64, [num_buffers, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(num_buffers):
        mbarrier.init(bars.index(slot), count=1)
    for step in gl.static_range(num_buffers - 1):
        tile, row, col = dealt(step, across, XBLOCK, YBLOCK)
        start_loads(step, row, col, tile < tiles, a_desc, b_desc, a_smem, b_smem, bars, num_buffers)
    for step in range(gl.cdiv(tiles - gl.program_id(0), gl.num_programs(0))):
        ahead = step + num_buffers - 1
        tile, row, col = dealt(ahead, across, XBLOCK, YBLOCK)
        start_loads(ahead, row, col, tile < tiles, a_desc, b_desc, a_smem, b_smem, bars, num_buffers)
        tile, row, col = dealt(step, across, XBLOCK, YBLOCK)
        add_tile(step, row, col, c_desc, a_smem, b_smem, c_smem, bars, num_buffers, num_stores, layout)
    for slot in gl.static_range(num_buffers):
        mbarrier.invalidate(bars.index(slot))
    tma.store_wait(pendings=0)


def run(
    a: Any,
    b: Any,
    c: Any,
    XBLOCK: int = 32,
    YBLOCK: int = 64,
    num_buffers: int = 2,
    num_stores: int = 1,
    num_warps: int = 4,
    vec: int = 4,
) -> Any:
    """c = a + b by `add_bands`; returns the compiled kernel."""
    rows, cols = a.shape
    smem = gl.NVMMASharedLayout.get_default_for([XBLOCK, YBLOCK], gl.float32)
    descriptors = [TensorDescriptor.from_tensor(matrix, [XBLOCK, YBLOCK], smem) for matrix in (a, b, c)]
    layout = gl.BlockedLayout(*workbench.lanes_along_rows((XBLOCK, YBLOCK), num_warps, vec))
    constants = (XBLOCK, YBLOCK, num_buffers, num_stores, layout)
    return add_bands[(weft.cdiv(rows, XBLOCK),)](*descriptors, cols, *constants, num_warps=num_warps)


def run_dealt(
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
) -> Any:
    """c = a + b by `add_dealt` on up to `programs` programs; returns the compiled kernel.

    With `flat`, contiguous matrices whose size YBLOCK divides are added as matrices of YBLOCK columns: a tile is then
    contiguous. `swizzle` is that of tiles in shared memory, in bytes; with 0 one TMA instruction copies up to 256 columns.
    """
    matrices, tiles, across = workbench.tiled((a, b, c), XBLOCK, YBLOCK, flat)
    smem = gl.NVMMASharedLayout(swizzle_byte_width=swizzle, element_bitwidth=32, rank=2)
    descriptors = [TensorDescriptor.from_tensor(matrix, [XBLOCK, YBLOCK], smem) for matrix in matrices]
    layout = gl.BlockedLayout(*workbench.lanes_along_rows((XBLOCK, YBLOCK), num_warps, vec))
    constants = (XBLOCK, YBLOCK, num_buffers, num_stores, layout)
    return add_dealt[(min(programs, tiles),)](*descriptors, tiles, across, *constants, num_warps=num_warps)


RUNS = {"bands": run, "dealt": run_dealt}
POINTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bands", {"num_buffers": 1}),
    ("bands", {"num_buffers": 2}),
    ("bands", {"num_buffers": 3}),
    ("bands", {"XBLOCK": 64, "YBLOCK": 128, "num_buffers": 3}),
    ("dealt", {"XBLOCK": 32, "YBLOCK": 64, "swizzle": 128, "flat": False}),
    ("dealt", {}),
)


def row(place: Place, kernel: str, point: dict[str, Any]) -> dict[str, Any]:
    """One line of the table: add, check, measure."""
    rows, cols = place.size(32768, 70), place.size(32768, 200)
    a, b, c = place.random(rows, cols), place.random(rows, cols), place.poisoned(rows, cols)
    compiled = RUNS[kernel](a, b, c, **point)
    place.check(c, a + b)
    constants = {name: value.value for name, value in compiled.request.arguments.items() if hasattr(value, "value")}
    return {
        "tiles": kernel,
        "tile": f"{constants['XBLOCK']}x{constants['YBLOCK']}",
        "buffers": f"{constants['num_buffers']} + {constants['num_stores']}",
        "shared bytes": compiled.shared,
        "registers": compiled.n_regs,
        "TB/s": place.throughput(lambda: RUNS[kernel](a, b, c, **point), 3 * rows * cols * 4),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, *point) for point in POINTS]
    workbench.report("Elementwise addition, TMA", rows, given.place, given.plot, "shared bytes")


if __name__ == "__main__":
    main()
