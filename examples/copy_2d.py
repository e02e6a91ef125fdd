"""A copy in two dimensions: whether a layout is good depends on the strides of the array.

A program copies a tile of XBLOCK rows and YBLOCK columns between arrays of any strides. Lanes should run along the dimension
of stride 1. If they run along the other, each lane's element lies in a different sector: 32 bytes are fetched for 4.

    python examples/copy_2d.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import workbench
from workbench import Place

import weft
from weft import language as gl


@weft.jit
def copy_2d(
    src, dst, rows, cols, src_row, src_col, dst_row, dst_col,
    XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    # A slice of the layout per dimension; expanding it with None gives the layout itself.
    row = gl.program_id(0) * XBLOCK + gl.arange(0, XBLOCK, layout=gl.SliceLayout(1, layout))
    col = gl.program_id(1) * YBLOCK + gl.arange(0, YBLOCK, layout=gl.SliceLayout(0, layout))
    mask = (row < rows)[:, None] & (col < cols)[None, :]
    tile = gl.load(src + (row * src_row)[:, None] + (col * src_col)[None, :], mask=mask)
    gl.store(dst + (row * dst_row)[:, None] + (col * dst_col)[None, :], tile, mask=mask)


def along_rows(num_warps: int = 4, vec: int = 1) -> gl.BlockedLayout:
    """Lanes run along a row."""
    return gl.BlockedLayout([1, vec], [1, 32], [1, num_warps], [1, 0])


def along_columns(num_warps: int = 4, vec: int = 1) -> gl.BlockedLayout:
    """Lanes run down a column."""
    return gl.BlockedLayout([vec, 1], [32, 1], [num_warps, 1], [0, 1])


def run(src: Any, dst: Any, layout: gl.BlockedLayout, XBLOCK: int, YBLOCK: int, num_warps: int = 4) -> Any:
    """Copy a matrix; returns the compiled kernel."""
    rows, cols = src.shape
    grid = (weft.cdiv(rows, XBLOCK), weft.cdiv(cols, YBLOCK))
    between = (*workbench.strides(src), *workbench.strides(dst))
    return copy_2d[grid](src, dst, rows, cols, *between, XBLOCK, YBLOCK, layout, num_warps=num_warps)


Matrices = Callable[[Place, int, int], tuple[Any, Any]]


def contiguous(place: Place, rows: int, cols: int) -> tuple[Any, Any]:
    """Rows one after the other."""
    return place.random(rows, cols), place.poisoned(rows, cols)


def transposed(place: Place, rows: int, cols: int) -> tuple[Any, Any]:
    """Columns one after the other."""
    return place.random(cols, rows).T, place.poisoned(cols, rows).T


def every_other_row(place: Place, rows: int, cols: int) -> tuple[Any, Any]:
    """Every other row of a matrix, copied to contiguous rows."""
    return place.random(2 * rows, cols)[::2], place.poisoned(rows, cols)


CASES: tuple[tuple[str, Matrices, gl.BlockedLayout, int, int], ...] = (
    ("contiguous, lanes along rows", contiguous, along_rows(), 1, 2048),
    ("transposed, lanes along rows", transposed, along_rows(), 1, 2048),
    ("transposed, lanes along columns", transposed, along_columns(), 2048, 1),
    ("every other row, lanes along rows", every_other_row, along_rows(), 1, 2048),
)


def row(place: Place, case: tuple[str, Matrices, gl.BlockedLayout, int, int]) -> dict[str, Any]:
    """One line of the table: copy, check, measure."""
    from weft.layout.cost import coalescing

    name, matrices, layout, XBLOCK, YBLOCK = case
    src, dst = matrices(place, place.size(16000, 48), place.size(16000, 4000))
    run(src, dst, layout, XBLOCK, YBLOCK)
    place.check(dst, src)
    warp = coalescing(layout.to_linear([XBLOCK, YBLOCK]), [XBLOCK, YBLOCK], workbench.strides(src), 4)
    rows, cols = src.shape
    return {
        "matrix and layout": name,
        "strides": workbench.strides(src),
        "programs": weft.cdiv(rows, XBLOCK) * weft.cdiv(cols, YBLOCK),
        "sectors per load": warp.sectors // warp.requests,
        "useful bytes": f"{warp.efficiency:.0%}",
        "TB/s": place.throughput(lambda: run(src, dst, layout, XBLOCK, YBLOCK), 2 * rows * cols * 4),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, case) for case in CASES]
    workbench.report("2D copy", rows, given.place, given.plot, "sectors per load")


if __name__ == "__main__":
    main()
