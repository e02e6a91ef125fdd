"""A copy between matrices of opposite layouts: read in one layout, exchange between threads, write in the other.

The source is row-major and the destination column-major, so with any single layout one side is not coalesced. With two layouts,
each derived from the strides of its matrix, both sides are coalesced; `convert_layout` moves elements to the threads that
write them, through shared memory.

    python examples/copy_opposite.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import workbench
from workbench import Place

import weft
from weft import language as gl


@weft.jit
def places(rows, cols, row_stride, col_stride, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr):
    row = gl.program_id(0) * XBLOCK + gl.arange(0, XBLOCK, layout=gl.SliceLayout(1, layout))
    col = gl.program_id(1) * YBLOCK + gl.arange(0, YBLOCK, layout=gl.SliceLayout(0, layout))
    mask = (row < rows)[:, None] & (col < cols)[None, :]
    return (row * row_stride)[:, None] + (col * col_stride)[None, :], mask


@weft.jit
def copy_opposite(
    src, dst, rows, cols, src_row, src_col, dst_row, dst_col,
    XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, read: gl.constexpr, write: gl.constexpr,
):  # fmt: skip
    offsets, mask = places(rows, cols, src_row, src_col, XBLOCK, YBLOCK, read)
    tile = gl.load(src + offsets, mask=mask)
    tile = gl.convert_layout(tile, write)
    offsets, mask = places(rows, cols, dst_row, dst_col, XBLOCK, YBLOCK, write)
    gl.store(dst + offsets, tile, mask=mask)


def layout_for(matrix: Any, num_warps: int = 4, vec: int = 1) -> gl.BlockedLayout:
    """Lanes along the contiguous dimension, `vec` elements each, and as many warps along it as fit in 128."""
    row_stride, col_stride = workbench.strides(matrix)
    along = min(num_warps, 128 // (32 * vec))
    if col_stride == 1:
        return gl.BlockedLayout([1, vec], [1, 32], [num_warps // along, along], [1, 0])
    if row_stride == 1:
        return gl.BlockedLayout([vec, 1], [32, 1], [along, num_warps // along], [0, 1])
    raise ValueError(f"a matrix with strides {row_stride} and {col_stride} is contiguous in no dimension")


def run(
    src: Any,
    dst: Any,
    read: gl.BlockedLayout,
    write: gl.BlockedLayout,
    XBLOCK: int = 128,
    YBLOCK: int = 128,
    num_warps: int = 4,
) -> Any:
    """Copy a matrix; returns the compiled kernel."""
    rows, cols = src.shape
    grid = (weft.cdiv(rows, XBLOCK), weft.cdiv(cols, YBLOCK))
    between = (*workbench.strides(src), *workbench.strides(dst))
    return copy_opposite[grid](src, dst, rows, cols, *between, XBLOCK, YBLOCK, read, write, num_warps=num_warps)


def row(place: Place, name: str, follow: tuple[str, str], vec: int) -> dict[str, Any]:
    """One line of the table: copy, check, measure. `follow` says which matrix each of the two layouts follows."""
    from weft.layout.convert.plans import describe, plan_conversion
    from weft.layout.cost import coalescing

    rows, cols = place.size(16000, 304), place.size(16000, 200)
    matrices = {"src": place.random(rows, cols), "dst": place.poisoned(cols, rows).T}
    read, write = (layout_for(matrices[side], vec=vec) for side in follow)
    src, dst = matrices["src"], matrices["dst"]
    run(src, dst, read, write)
    place.check(dst, src)
    tile = [128, 128]
    from_, to = read.to_linear(tile), write.to_linear(tile)
    load = coalescing(from_, tile, workbench.strides(src), 4)
    store = coalescing(to, tile, workbench.strides(dst), 4)
    return {
        "layouts": name,
        "useful bytes, load": f"{load.efficiency:.0%}",
        "useful bytes, store": f"{store.efficiency:.0%}",
        "sectors per warp": load.sectors + store.sectors,
        "conversion": describe(plan_conversion(from_, to, 32)),
        "TB/s": place.throughput(lambda: run(src, dst, read, write), 2 * rows * cols * 4),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    cases = (
        ("both the source's", ("src", "src"), 1),
        ("both the destination's", ("dst", "dst"), 1),
        ("each its own", ("src", "dst"), 1),
        ("each its own, 4 elements wide", ("src", "dst"), 4),
    )
    rows = [row(given.place, *case) for case in cases]
    workbench.report("Copy from rows to columns, tiles of 128x128", rows, given.place, given.plot, "sectors per warp")


if __name__ == "__main__":
    main()
