"""Samples from rows of logits: temperature, the most likely tokens (top-p, min-p), and one random number a row.

A row is held in registers, by a cluster if it is long. The least power that belongs to the most likely tokens is found by
halving the interval of its bits, which takes thirty sums over the row and no sorting. The sample is the first token at which
the prefix sum of what is kept exceeds a random part of the whole.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.rows import Rows
from weft.kernels.device.softmax import LEAST, LOG2E
from weft.kernels.rows.plan import RowPlan

ONE = 0x3F800000
"""The bits of 1.0, the largest power."""
NONE = 1 << 30


@jit
def least_power(rows, e, bits, share, turn):
    """The bits of the largest number such that powers from it on add up to `share`, and the next exchange."""
    low = gl.zeros([rows.plan.lines], gl.int32, gl.SliceLayout(1, rows.plan.layout))
    high = low + (ONE + 1)
    for _ in range(30):
        middle = low + (high - low) // 2
        mass = rows.sum([gl.where(bits >= middle[:, None], e, 0.0)], turn)
        turn += 1
        enough = mass >= share
        low, high = gl.where(enough, middle, low), gl.where(enough, high, middle)
    return low, turn


@jit
def before_of(rows, x, turn):
    """The sums of the blocks before this one, and of all."""
    if rows.plan.blocks == 1:
        own = rows.sum([x], turn)
        return gl.zeros_like(own), own
    sums = rows.part_sums([x])
    own = gl.sum(rows.exchanged(turn, (sums,))[0], axis=1)
    block = gl.arange(0, rows.plan.blocks, own.layout)
    upto = gl.cumsum(own, 0) - own
    line = gl.arange(0, rows.plan.lines, gl.SliceLayout(1, rows.plan.layout))
    before = rows.lined(gl.to_tensor(0.0))
    for i in gl.static_range(rows.plan.blocks):
        before = gl.where(line == i, gl.sum(gl.where(block == i, upto, 0.0), axis=0), before)
    return before, rows.lined(gl.sum(own, axis=0))


@jit(fast_math=["exp2"], do_not_specialize=["count", "cols", "stride", "seed", "offset"])
def sample_rows(
    logits: gl.tensor, samples: gl.tensor, temperatures: gl.tensor | float, top_ps: gl.tensor | float,
    min_ps: gl.tensor | float, count: int, cols: int, stride: int, seed: int, offset: int, EACH: gl.constexpr,
    TOP: gl.constexpr, plan: gl.constexpr[RowPlan],
) -> None:  # fmt: skip
    """One sample of each row, with random number `offset` + row of the seed. EACH: which of temperature, top-p and min-p rows
    have of their own; TOP: whether top-p leaves anything out."""
    rows = Rows.make(count, cols, plan)
    rows.ready()
    turn = gl.to_tensor(0)
    for row in range(rows.first(), count, rows.step()):
        here = rows.beginning(logits, row, stride)
        (x,) = here.load(logits, row, stride, float("-inf"))
        x = x.to(gl.float32)
        x = gl.where(x == x, x, float("-inf"))
        temperature = rows.number(temperatures, row, EACH[0])
        peak = rows.max([x], turn)
        turn += 1
        inverse = gl.where(temperature > 0, LOG2E / temperature, 0.0)
        # Relative to the largest, also if that is infinite; without a temperature there is nothing else.
        e = gl.where(temperature[:, None] > 0, gl.exp2((x - gl.maximum(peak, LEAST)[:, None]) * inverse[:, None]), 0.0)
        e = gl.where((x == peak[:, None]) & (x > float("-inf")), 1.0, e)
        bits = e.to(gl.int32, bitcast=True)
        kept = e >= rows.number(min_ps, row, EACH[2])[:, None]
        if TOP:
            whole = rows.sum([e], turn)
            least, turn = least_power(rows, e, bits, whole * rows.number(top_ps, row, EACH[1]), turn + 1)
            kept = kept & (bits >= least[:, None])
        kept = kept & (e > 0)
        part = gl.where(kept, e, 0.0)
        upto = gl.cumsum(part, 1)
        before, whole = before_of(rows, part, turn)
        turn += 1
        number = row + gl.arange(0, plan.lines, gl.SliceLayout(1, plan.layout)) * (1 if plan.blocks == 1 else 0)
        aim = whole * gl.rand(seed, number.to(gl.int64) + offset)
        beyond = kept & (before[:, None] + upto > aim[:, None])
        column = here.column + gl.zeros([plan.lines, plan.part], gl.int32, plan.layout)
        first = gl.min(gl.where(beyond, column, NONE), axis=1)
        # Sums are rounded: if none is beyond, it is the last one that is kept.
        last = gl.max(gl.where(kept, column, -1), axis=1)
        if plan.blocks > 1:
            like = rows.part_sums([part])
            found = rows.exchanged(
                turn, (rows.for_warps(first.to(gl.float32), like), rows.for_warps(last.to(gl.float32), like))
            )
            turn += 1
            first = rows.lined(gl.min(gl.min(found[0], axis=0), axis=0).to(gl.int32))
            last = rows.lined(gl.max(gl.max(found[1], axis=0), axis=0).to(gl.int32))
        rows.store_numbers(samples, row, gl.where(first < NONE, first, last))
