"""The second kernel of split-K: it adds the partial results, scales and converts."""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.epilogue import factors
from weft.language.extra.cuda import gdc_wait

ROWS, COLUMNS, WARPS = 4, 128, 4
"""A program's tile of the output, and its warps."""


@jit
def reduce_splits(
    partials, out, scale_rows, scale_columns, row_stride, column_stride, rows, columns, below, across,
    plan: gl.constexpr,
):  # fmt: skip
    """out = the sum of `plan.splits` matrices of `across` columns, stacked at intervals of `below` rows."""
    layout: gl.constexpr = gl.BlockedLayout([1, COLUMNS // 32], [1, 32], [WARPS, 1], [1, 0])
    row, column = gl.program_id(0) * ROWS, gl.program_id(1) * COLUMNS
    i = row + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    j = column + gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
    mask = (i < rows)[:, None] & (j < columns)[None, :]
    places = partials + gl.cast(i, gl.int64)[:, None] * across + j[None, :]
    # The launch before this one writes the partial results.
    gdc_wait()
    total = gl.load(places, mask=mask, other=0)
    for part in gl.static_range(1, plan.splits):
        total += gl.load(places + gl.cast(below, gl.int64) * across * part, mask=mask, other=0)
    if plan.scale_rows or plan.scale_columns:
        total = total.to(gl.float32)
    if plan.scale_rows:
        total = total * factors(scale_rows, plan.scale_rows, row, rows, 0, layout, ROWS)
    if plan.scale_columns:
        total = total * factors(scale_columns, plan.scale_columns, column, columns, 1, layout, COLUMNS)
    target = out + gl.cast(i, gl.int64)[:, None] * row_stride + gl.cast(j, gl.int64)[None, :] * column_stride
    gl.store(target, total.to(plan.dtype), mask=mask)
