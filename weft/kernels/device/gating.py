"""The best experts of tokens: the k largest of a row of scores, with softmax; and their gradient.

A row lies in a few lanes, and a program has several, so that most of the work is within a thread. Scores are compared as
integers of the same order. Groups of four that follow one another have their largest in registers, and lie in shared memory.
Each of the k rounds finds the largest of each row, the first group that has it, in this the first position, and removes it
there: two instructions an element, where keys of 64 bits that hold score and position take more than ten.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.rows import Rows
from weft.kernels.device.selection import LAST
from weft.kernels.device.softmax import LOG2E, powers
from weft.kernels.rows.plan import RowPlan

GONE: gl.constexpr = gl.constexpr(-(1 << 31))
"""Below the numbers of all scores."""
GROUP = 4
"""Positions of a group."""


@gl.constexpr_function
def padded(plan):
    """Rows in shared memory, so that groups of different rows lie in different banks."""
    return gl.PaddedSharedLayout.with_identity_for([[plan.part, GROUP]], [plan.lines, plan.part], [1, 0])


@gl.constexpr_function
def members(plan, count):
    """The members of one group of each row, in the lanes that have the row."""
    down, warps = plan.down
    lanes = 32 // down
    return gl.BlockedLayout([1, max(count // lanes, 1)], [down, lanes], [warps, 1], [1, 0])


@jit
def numbers_of(x):
    """Scores as integers of the same order; NaN counts as the largest number, and -0 as 0."""
    bits = (x + 0.0).to(gl.int32, bitcast=True)
    return gl.where(x == x, bits ^ ((bits >> 31) & LAST), LAST)


@jit
def score_of(number):
    """The score that an integer stands for."""
    return (number ^ ((number >> 31) & LAST)).to(gl.float32, bitcast=True)


@jit(fast_math=["exp2"], do_not_specialize=["count", "cols", "stride"])
def choose(
    scores: gl.tensor, weights: gl.tensor, indices: gl.tensor, count: int, cols: int, stride: int, K: gl.constexpr,
    SIZE: gl.constexpr, RENORMALISE: gl.constexpr, plan: gl.constexpr[RowPlan],
) -> None:  # fmt: skip
    """Weights and positions [count, K] of the K largest scores of each row; SIZE is K as a power of two."""
    rows = Rows.make(count, cols, plan)
    row = rows.first()
    (x,) = rows.load(scores, row, stride, float("-inf"))
    x = x.to(gl.float32)
    peak, _, total = powers(x)
    numbers = numbers_of(x)
    if not plan.whole:
        numbers = gl.where(rows.column < rows.cols, numbers, GONE)
    four: gl.constexpr = min(GROUP, plan.part)
    buffer = gl.allocate_shared_memory(gl.int32, [plan.lines, plan.part], padded(plan), numbers)
    tops = gl.max(gl.reshape(numbers, [plan.lines, plan.part // four, four]), axis=2)
    group = gl.arange(0, plan.part // four, gl.SliceLayout(0, tops.layout))[None, :]
    member = gl.arange(0, four, gl.SliceLayout(0, members(plan, four)))[None, :]
    place = gl.arange(0, SIZE, gl.SliceLayout(0, plan.layout))[None, :]
    best = gl.full([plan.lines, SIZE], GONE, gl.int32, plan.layout)
    places = gl.zeros([plan.lines, SIZE], gl.int32, plan.layout)
    for i in gl.static_range(K):
        top = gl.max(tops, axis=1)[:, None]
        first = gl.min(gl.where(tops == top, group, LAST), axis=1)[:, None]
        at = gl.convert_layout(first, member.layout) * four + member
        those = buffer.gather(at, 1)
        largest = gl.convert_layout(top, member.layout)
        position = gl.min(gl.where(those == largest, at, LAST), axis=1)[:, None]
        those = gl.where(at == position, GONE, those)
        buffer.scatter(those, at, 1)
        left = gl.convert_layout(gl.max(those, axis=1)[:, None], tops.layout)
        tops = gl.where(group == first, left, tops)
        best = gl.where(place == i, gl.convert_layout(top, plan.layout), best)
        places = gl.where(place == i, gl.convert_layout(position, plan.layout), places)
    inside = (place < K) & (rows.line < count - row)
    power = gl.where(place < K, gl.exp2((score_of(best) - peak[:, None]) * LOG2E), 0.0)
    whole = gl.sum(power, axis=1) if RENORMALISE else total
    at = (row + rows.line).to(gl.int64) * K + place
    gl.store(weights + at, (power / whole[:, None]).to(weights.dtype.element_ty), mask=inside)
    gl.store(indices + at, places, mask=inside)


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
        (x,) = rows.load(scores, row, stride, float("-inf"))
        _, e, total = powers(x.to(gl.float32))
        chosen = e * (1.0 / total)[:, None]
    rows.store(out, row, out_stride, [chosen * (upper - along[:, None])])
