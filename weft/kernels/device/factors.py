"""Factors of rows from partial sums of squares."""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit

WARPS = 4
ROWS = 32 * WARPS
"""Rows of a program, one for each thread."""


@jit(do_not_specialize=["rows", "columns", "row_stride", "column_stride"])
def rms_of_squares(
    squares: gl.tensor, factors: gl.tensor, rows: int, columns: int, row_stride: int, column_stride: int, share: float,
    eps: float,
) -> None:  # fmt: skip
    """factors[i] = 1 / sqrt(share * the sum of squares[i] + eps)."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    i = gl.program_id(0) * ROWS + gl.arange(0, ROWS, layout)
    inside = i < rows
    place = squares + gl.cast(i, gl.int64) * row_stride
    total = gl.full([ROWS], 0.0, gl.float32, layout)
    for j in range(columns):
        total += gl.load(place + j * column_stride, mask=inside, other=0.0)
    gl.store(factors + i, gl.div_rn(1.0, gl.sqrt_rn(total * share + eps)), mask=inside)
