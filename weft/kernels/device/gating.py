"""The best experts of tokens: the k largest of a row of scores, with softmax; and their gradient.

A row lies in a few lanes, and a program has several. Scores are compared as 64-bit keys, of which no two are equal: upper half,
the score as an integer of the same order, lower half, the position from the end, as in `weft.kernels.device.selection`. Each of
the k rounds takes the largest key of each row and removes it.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.rows import Rows
from weft.kernels.device.selection import LAST, LOWEST
from weft.kernels.device.softmax import LOG2E, powers
from weft.kernels.rows.plan import RowPlan


@jit
def keys_of(x, column):
    """Keys of scores; NaN counts as the largest number, and -0 as 0."""
    bits = (x + 0.0).to(gl.int32, bitcast=True)
    number = gl.where(x == x, bits ^ ((bits >> 31) & LAST), LAST)
    return (number.to(gl.int64) << 32) | (LAST - column).to(gl.int64)


@jit
def score_of(key):
    """The score of a key."""
    number = (key >> 32).to(gl.int32)
    return (number ^ ((number >> 31) & LAST)).to(gl.float32, bitcast=True)


@jit(fast_math=["exp2"], do_not_specialize=["count", "cols", "stride"])
def choose(
    scores: gl.tensor, weights: gl.tensor, indices: gl.tensor, count: int, cols: int, stride: int, K: gl.constexpr,
    SIZE: gl.constexpr, RENORMALISE: gl.constexpr, plan: gl.constexpr[RowPlan],
) -> None:  # fmt: skip
    """Weights and positions [count, K] of the K largest scores of each row; SIZE is K as a power of two."""
    rows = Rows.make(count, cols, plan)
    row = rows.first()
    x = rows.load(scores, row, stride, float("-inf")).to(gl.float32)
    peak, _, total = powers(x)
    keys = gl.where(rows.column < rows.cols, keys_of(x, rows.column), LOWEST)
    place = gl.arange(0, SIZE, gl.SliceLayout(0, plan.layout))[None, :]
    best = gl.full([plan.lines, SIZE], LOWEST, gl.int64, plan.layout)
    for i in gl.static_range(K):
        top = gl.max(keys, axis=1)
        keys = gl.where(keys == top[:, None], LOWEST, keys)
        best = gl.where(place == i, top[:, None], best)
    inside = (place < K) & (rows.line < count - row)
    power = gl.where(place < K, gl.exp2((score_of(best) - peak[:, None]) * LOG2E), 0.0)
    whole = gl.sum(power, axis=1) if RENORMALISE else total
    at = (row + rows.line).to(gl.int64) * K + place
    gl.store(weights + at, (power / whole[:, None]).to(weights.dtype.element_ty), mask=inside)
    gl.store(indices + at, (LAST - (best & 0xFFFFFFFF)).to(indices.dtype.element_ty), mask=inside)


@jit(fast_math=["exp2"], do_not_specialize=["count", "cols", "stride", "out_stride"])
def choose_backward(
    grad: gl.tensor, scores: gl.tensor, weights: gl.tensor, indices: gl.tensor, out: gl.tensor, count: int, cols: int,
    stride: int, out_stride: int, K: gl.constexpr, RENORMALISE: gl.constexpr, plan: gl.constexpr[RowPlan],
) -> None:  # fmt: skip
    """The gradient of scores: w * (grad - sum(grad * w)), where w are the weights of the chosen, or of all experts."""
    rows = Rows.make(count, cols, plan)
    row = rows.first()
    line = row + gl.arange(0, plan.lines, gl.SliceLayout(1, plan.layout))
    there = line < count
    at = line.to(gl.int64) * K
    along = gl.zeros([plan.lines], gl.float32, gl.SliceLayout(1, plan.layout))
    upper = gl.zeros([plan.lines, plan.part], gl.float32, plan.layout)
    chosen = gl.zeros([plan.lines, plan.part], gl.float32, plan.layout)
    for i in gl.static_range(K):
        g = gl.load(grad + at + i, mask=there, other=0.0).to(gl.float32)
        w = gl.load(weights + at + i, mask=there, other=0.0).to(gl.float32)
        index = gl.load(indices + at + i, mask=there, other=0).to(gl.int32)
        along += g * w
        here = rows.column == index[:, None]
        upper = gl.where(here, g[:, None], upper)
        chosen = gl.where(here, w[:, None], chosen)
    if not RENORMALISE:
        _, e, total = powers(rows.load(scores, row, stride, float("-inf")).to(gl.float32))
        chosen = e * (1.0 / total)[:, None]
    rows.store(out, row, out_stride, chosen * (upper - along[:, None]))
