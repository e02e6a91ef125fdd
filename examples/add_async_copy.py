"""Elementwise addition of matrices: with plain loads, and with asynchronous copies that overlap the addition.

A program walks along a band of XBLOCK rows in tiles of YBLOCK columns. `add_plain` loads a tile, adds, stores, and only then
loads the next. `add_async` keeps `num_buffers` tiles of each matrix in shared memory: `cp.async` fills the others while one
is added. With one buffer nothing overlaps, and the round trip through shared memory gains nothing.

    python examples/add_async_copy.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import workbench
from workbench import Place

import weft
from weft import language as gl
from weft.language.nvidia.ampere import async_copy


@weft.jit
def tile_at(col, row, rows, end, stride, YBLOCK: gl.constexpr, layout: gl.constexpr):
    column = col + gl.arange(0, YBLOCK, layout=gl.SliceLayout(0, layout))
    mask = (row < rows)[:, None] & (column < end)[None, :]
    return (row * stride)[:, None] + column[None, :], mask


@weft.jit
def add_plain(
    a, b, c, rows, cols, stride, span, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr
):  # fmt: skip
    row = gl.program_id(1) * XBLOCK + gl.arange(0, XBLOCK, layout=gl.SliceLayout(1, layout))
    start = gl.program_id(0) * span
    end = gl.minimum(start + span, cols)
    for col in range(start, end, YBLOCK):
        offsets, mask = tile_at(col, row, rows, end, stride, YBLOCK, layout)
        gl.store(c + offsets, gl.load(a + offsets, mask=mask) + gl.load(b + offsets, mask=mask), mask=mask)


@weft.jit
def start_copies(
    step, a, b, a_smem, b_smem, start, row, rows, end, stride,
    YBLOCK: gl.constexpr, num_buffers: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    offsets, mask = tile_at(start + step * YBLOCK, row, rows, end, stride, YBLOCK, layout)
    async_copy.async_copy_global_to_shared(a_smem.index(step % num_buffers), a + offsets, mask=mask)
    async_copy.async_copy_global_to_shared(b_smem.index(step % num_buffers), b + offsets, mask=mask)
    async_copy.commit_group()


@weft.jit
def add_async(
    a, b, c, rows, cols, stride, span,
    XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, num_buffers: gl.constexpr, layout: gl.constexpr, smem: gl.constexpr,
):  # fmt: skip
    row = gl.program_id(1) * XBLOCK + gl.arange(0, XBLOCK, layout=gl.SliceLayout(1, layout))
    start = gl.program_id(0) * span
    end = gl.minimum(start + span, cols)
    a_smem = gl.allocate_shared_memory(a.dtype.element_ty, [num_buffers, XBLOCK, YBLOCK], smem)
    b_smem = gl.allocate_shared_memory(b.dtype.element_ty, [num_buffers, XBLOCK, YBLOCK], smem)
    for step in gl.static_range(num_buffers - 1):
        start_copies(step, a, b, a_smem, b_smem, start, row, rows, end, stride, YBLOCK, num_buffers, layout)
    for step in range(gl.cdiv(end - start, YBLOCK)):
        # Past the end the mask is false. Such a group copies nothing, but it counts, so the wait is the same in every step.
        ahead = step + num_buffers - 1
        start_copies(ahead, a, b, a_smem, b_smem, start, row, rows, end, stride, YBLOCK, num_buffers, layout)
        async_copy.wait_group(num_buffers - 1)
        x = a_smem.index(step % num_buffers).load(layout)
        y = b_smem.index(step % num_buffers).load(layout)
        offsets, mask = tile_at(start + step * YBLOCK, row, rows, end, stride, YBLOCK, layout)
        gl.store(c + offsets, x + y, mask=mask)
    async_copy.wait_group(0)


def run(
    a: Any,
    b: Any,
    c: Any,
    XBLOCK: int = 32,
    YBLOCK: int = 64,
    num_buffers: int = 2,
    vec: int = 4,
    span: int | None = None,
    num_warps: int = 4,
    maxnreg: int | None = None,
) -> Any:
    """c = a + b, and the compiled kernel: `add_plain` with 0 buffers, else `add_async`.

    Threads copy `vec` elements at a time and use at most `maxnreg` registers. A program's band is `span` columns long, by
    default the whole row.
    """
    rows, cols = a.shape
    stride = workbench.row_stride(a, b, c)
    span = cols if span is None else span
    layout = gl.BlockedLayout(*workbench.lanes_along_rows((XBLOCK, YBLOCK), num_warps, vec))
    grid = (weft.cdiv(cols, span), weft.cdiv(rows, XBLOCK))
    if num_buffers == 0:
        constants = (XBLOCK, YBLOCK, layout)
        return add_plain[grid](a, b, c, rows, cols, stride, span, *constants, num_warps=num_warps, maxnreg=maxnreg)
    smem = gl.SwizzledSharedLayout(vec=1, per_phase=1, max_phase=1, order=[1, 0])
    constants = (XBLOCK, YBLOCK, num_buffers, layout, smem)
    return add_async[grid](a, b, c, rows, cols, stride, span, *constants, num_warps=num_warps, maxnreg=maxnreg)


def row(place: Place, name: str, point: dict[str, Any]) -> dict[str, Any]:
    """One line of the table: add, check, measure."""
    rows, cols = place.size(32768, 70), place.size(32768, 200)
    a, b, c = place.random(rows, cols), place.random(rows, cols), place.poisoned(rows, cols)
    compiled = run(a, b, c, **point)
    place.check(c, a + b)
    return {
        "kernel": name,
        "tile": f"{compiled.request.arguments['XBLOCK'].value}x{compiled.request.arguments['YBLOCK'].value}",
        "bytes per copy": 4 * point.get("vec", 4),
        "shared bytes": compiled.shared,
        "registers": compiled.n_regs,
        "TB/s": place.throughput(lambda: run(a, b, c, **point), 3 * rows * cols * 4),
    }


POINTS: dict[str, dict[str, Any]] = {
    "plain": {"num_buffers": 0},
    "1 buffer": {"num_buffers": 1},
    "2 buffers": {"num_buffers": 2},
    "3 buffers": {"num_buffers": 3},
    "2 buffers, one element a copy": {"num_buffers": 2, "vec": 1},
    # Rows of a tile are 2 KiB long, and neighbouring programs are neighbours in memory: DRAM is fastest for such accesses.
    "plain, long rows": {"num_buffers": 0, "XBLOCK": 1, "YBLOCK": 1024, "span": 1024},
    "2 buffers, long rows": {"num_buffers": 2, "XBLOCK": 2, "YBLOCK": 512, "span": 4096},
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, name, point) for name, point in POINTS.items()]
    workbench.report("Elementwise addition, cp.async", rows, given.place, given.plot, "shared bytes")


if __name__ == "__main__":
    main()
