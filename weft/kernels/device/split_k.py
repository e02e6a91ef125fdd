"""The second kernel of split-K: it adds the partial results, and applies the epilogue."""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.chain import in_turn
from weft.kernels.device.epilogue import fetch_all, finished, measured

ROWS, COLUMNS, WARPS = 4, 128, 4
"""A program's tile of the output, and its warps."""


@jit(do_not_specialize=["given", "step"])
def reduce_splits(
    partials, out, given, row_stride, column_stride, rows, columns, below, across, step, plan: gl.constexpr,
):  # fmt: skip
    """out = the epilogue of the sum of `plan.splits` matrices of `across` columns, stacked at intervals of `below` rows; of a
    batch, outputs `step` elements apart, of as many matrices each."""
    layout: gl.constexpr = gl.BlockedLayout([1, COLUMNS // 32], [1, 32], [WARPS, 1], [1, 0])
    row, column = gl.program_id(0) * ROWS, gl.program_id(1) * COLUMNS
    i = row + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    j = column + gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
    mask = (i < rows)[:, None] & (j < columns)[None, :]
    operands = None
    if not plan.epilogue.plain:
        operands = fetch_all(given, row, column, rows, columns, layout, [ROWS, COLUMNS], plan.epilogue)
    if step is not None:
        number = gl.cast(gl.program_id(2), gl.int64)
        partials += number * plan.splits * below * across
        out += number * step
    # The launch before this one writes the partial results. The one behind it may start, and waits in turn.
    in_turn()
    # Of a tile with both halves of b the second one's sums lie behind the first one's.
    lies = j + j // plan.half * plan.half if plan.half else j
    places = partials + gl.cast(i, gl.int64)[:, None] * across + lies[None, :]
    total = added(places, mask, below, across, plan)
    other = added(places + plan.half, mask, below, across, plan) if plan.half else None
    total = finished(total, other, operands, row, column, plan.epilogue)
    total, _ = measured(total, None, given, row, column, rows, columns, True, True, plan.epilogue, plan.dtype)
    target = out + gl.cast(i, gl.int64)[:, None] * row_stride + gl.cast(j, gl.int64)[None, :] * column_stride
    gl.store(target, total.to(plan.dtype), mask=mask)


@jit
def added(places, mask, below, across, plan: gl.constexpr):
    """The sum of the splits, in their order."""
    total = gl.load(places, mask=mask, other=0)
    for part in gl.static_range(1, plan.splits):
        total += gl.load(places + gl.cast(below, gl.int64) * across * part, mask=mask, other=0)
    return total
