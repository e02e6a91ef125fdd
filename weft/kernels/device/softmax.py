"""Softmax and log-softmax of rows, forward and backward.

Each warp has the maximum and the sum of its part of a row, and all warps that have the row exchange both (`Rows.exchanged`). So
an element takes one exponential, and all that warps wait for is one exchange of 8 bytes. Exponentials are `ex2.approx.ftz`:
those below 2^-126 are 0, which saves three instructions an element.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.rows import Rows, each
from weft.kernels.rows.plan import RowPlan

LOG2E: gl.constexpr = gl.constexpr(1.4426950408889634)
LN2: gl.constexpr = gl.constexpr(0.6931471805599453)
LARGE: gl.constexpr = gl.constexpr(65536.0)
"""Above the largest float16; from here on neighbours among bfloat16 numbers are 256 apart."""
LEAST: gl.constexpr = gl.constexpr(-3.4028234663852886e38)
"""A maximum is at least this: of columns that are all -inf or masked off, -inf - -inf would be NaN."""


@jit
def afresh(x):
    """Elements of 16 bits as they were loaded. Otherwise the compiler would keep what they have been widened to, in twice the
    registers, from one use to the next."""
    if x.dtype == gl.float32:
        return x
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], x.dtype, True, 2)


@jit
def powers(x):
    """The largest elements of the lines, and e to the power of the differences from them, with their sums."""
    peak = gl.maximum(gl.max(x, axis=1), LEAST)
    # Not one FMA: the product of a mask's -3e38 and log2(e) overflows.
    e = gl.exp2((x - peak[:, None]) * LOG2E)
    return peak, e, gl.sum(e, axis=1)


@jit
def part_powers(rows, x):
    """Of the tiles of rows with 0 where there are no columns, or -inf if they begin anywhere: the largest element of each warp,
    powers of e, and their sums.

    `powers`, tiles [lines, pieces, across, lanes, elements of an access], times `unit` [lines, across] are e to the power of
    the differences from the largest element; the sums are of these."""
    plan: gl.constexpr = rows.plan
    x = [rows.accesses(tile) for tile in x]
    tops = [gl.max(tile, axis=4).to(gl.float32) for tile in x]
    top = gl.max(present(rows, tops[0], 0, tops[0], float("-inf")), axis=1)
    for i in gl.static_range(1, plan.tiles):
        top = gl.maximum(top, gl.max(present(rows, tops[i], i, tops[i], float("-inf")), axis=1))
    peak = gl.maximum(gl.max(top, axis=2), LEAST)
    # Of float32, differences from the largest element. Of 16 bits, one FMA an element: the largest one gets what is rounded off
    # `start` for an exponent. Of larger numbers that could be anything, but two of them that differ at all in 16 bits differ by
    # 256, so that any slope serves, and 1 rounds nothing.
    slope, start, less = gl.full_like(peak, LOG2E), 0.0 - peak, gl.full_like(peak, 0.0)
    if x[0].dtype != gl.float32:
        slope = gl.where(gl.abs(peak) > LARGE, 1.0, LOG2E)
        start = 0.0 - peak * slope
        # 1 over the power of the largest element is 1 - d + d^2 to the last bit: a row of one element has the sum 1.
        d = gl.exp2(gl.fma(peak, slope, start)) - 1.0
        less = gl.fma(d, d, 0.0 - d)
    powers = (powers_of(x[0], present(rows, each(start), 0, tops[0], float("-inf")), slope),)
    total = gl.sum(gl.sum(powers[0], axis=4), axis=1)
    for i in gl.static_range(1, plan.tiles):
        powers += (powers_of(x[i], present(rows, each(start), i, tops[i], float("-inf")), slope),)
        total += gl.sum(gl.sum(powers[i], axis=4), axis=1)
    total = gl.sum(total, axis=2)
    return peak, powers, 1.0 + less, gl.fma(total, less, total)


@jit
def powers_of(x, start, slope):
    """2 to the power of `slope` times elements [lines, pieces, across, lanes, elements of an access] plus `start`; of float32,
    e to the power of elements plus `start`."""
    start = start[:, :, :, :, None]
    if x.dtype == gl.float32:
        return gl.exp2((x + start) * LOG2E)
    return gl.exp2(gl.fma(x.to(gl.float32), each(slope)[:, :, :, :, None], start))


@jit
def present(rows, x, i: gl.constexpr, like, other: gl.constexpr):
    """A number of each access of tile `i`, and `other` for those of columns that there are not, which read 0. `like` has the
    layout of such numbers."""
    if i < rows.plan.full or rows.plan.align:
        return x
    return gl.where(rows.real(like, i), x, other)


@jit
def combined(rows, peaks, totals):
    """The largest elements of whole rows, and the sums relative to these, of what warps have exchanged."""
    if rows.plan.blocks == 1:
        top = gl.max(peaks, axis=1)
        return rows.for_lines(top), rows.for_lines(gl.sum(totals * gl.exp2((peaks - top[:, None]) * LOG2E), axis=1))
    top, total = of_cluster(peaks, totals)
    return rows.lined(top), rows.lined(total)


@jit
def of_cluster(peaks, totals):
    """The largest element of the row of a cluster, and the sum relative to it, as scalars."""
    top = gl.max(gl.max(peaks, axis=0), axis=0)
    return top, gl.sum(gl.sum(totals * gl.exp2((peaks - top) * LOG2E), axis=0), axis=0)


@jit
def share(rows, peak, top, whole):
    """What makes the powers of each warp parts of the sum of the row."""
    return gl.exp2((peak - rows.for_warps(top, peak)) * LOG2E) / rows.for_warps(whole, peak)


@jit(fast_math=["exp2"], do_not_specialize=["count", "cols", "src_stride", "dst_stride"])
def softmax_rows(
    src: gl.tensor, dst: gl.tensor, counter: gl.tensor | None, count: int, cols: int, src_stride: int, dst_stride: int,
    LOG: gl.constexpr, plan: gl.constexpr[RowPlan],
) -> None:  # fmt: skip
    """`dst` = softmax of the rows of `src`, or its logarithm."""
    rows = Rows.make(count, cols, plan, counter)
    xs = rows.stream(src, src_stride)
    rows.begin((xs,))
    rows.ready()
    turn, slot, row = 0, 0, rows.first()
    following = row + rows.step()
    while row < count:
        ticket = rows.draw()
        rows.arrived()
        here = rows.beginning(src, row, src_stride)
        x = here.take(xs, slot, row, float("-inf"))
        slot = rows.refill((xs,), slot, row, following)
        peak, e, unit, total = part_powers(rows, x)
        found = rows.exchanged(turn, (peak, total, *ticket))
        peaks, totals = found[0], found[1]
        top, whole = combined(rows, peaks, totals)
        turn = turn + 1
        if LOG:
            level = (gl.log2(whole) * LN2)[:, None]
            y = [(afresh(tile).to(gl.float32) - top[:, None]) - level for tile in x]
        else:
            factor = each(share(rows, peak, top, whole) * unit)[:, :, :, :, None]
            y = [rows.together(tile * factor) for tile in e]
        here.store(dst, row, dst_stride, y)
        row, following = following, rows.after(following, found[2:3])


@jit(fast_math=["exp2"], do_not_specialize=["count", "cols", "grad_stride", "y_stride", "dst_stride"])
def softmax_backward_rows(
    grad: gl.tensor, y: gl.tensor, dst: gl.tensor, count: int, cols: int, grad_stride: int, y_stride: int, dst_stride: int,
    LOG: gl.constexpr, plan: gl.constexpr[RowPlan],
) -> None:  # fmt: skip
    """`dst` = the gradient of what `y` is the softmax of, or the logarithm of one."""
    rows = Rows.make(count, cols, plan)
    grads, ys = rows.stream(grad, grad_stride), rows.stream(y, y_stride)
    rows.begin((grads, ys))
    rows.ready()
    turn, slot = 0, 0
    for row in range(rows.first(), count, rows.step()):
        rows.arrived()
        here = rows.beginning(y, row, y_stride)
        g = [tile.to(gl.float32) for tile in here.take(grads, slot, row)]
        p = [tile.to(gl.float32) for tile in here.take(ys, slot, row)]
        slot = rows.refill((grads, ys), slot, row)
        if LOG:
            level = rows.sum(g, turn)[:, None]
            x = [g[i] - gl.exp2(p[i] * LOG2E) * level for i in gl.static_range(plan.tiles)]
        else:
            level = rows.sum([g[i] * p[i] for i in gl.static_range(plan.tiles)], turn)[:, None]
            x = [p[i] * (g[i] - level) for i in gl.static_range(plan.tiles)]
        turn = turn + 1
        here.store(dst, row, dst_stride, x)
