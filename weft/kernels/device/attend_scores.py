"""Parts of attention kernels that change scores: soft cap, ALiBi, and functions of the caller.

Scores stay in the unit of the product of queries and keys, and the factor to exponents of 2 is applied with the exponential, in
one instruction. Only functions of the caller get scaled scores; one that returns them as they are leaves no instruction.
"""

from __future__ import annotations

from typing import Any

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.attend_narrow import TURNED
from weft.kernels.device.attend_parts import along, by_axes, columns, lanes, rows_by_lane, whole_of
from weft.language.marks import builtin

LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453


@gl.aggregate
class Scoring:
    """What changes scores. `scale` is the factor of scores in exponents of 2; with a soft cap that of their capped tangents,
    and `inner` that of the exponents by which tangents are computed. `slopes` and `sinks` are those of the query heads.
    `scales` are those of arrays of float8: for q, k and v a pointer, and the steps from a batch, head and block to the next."""

    scale: gl.tensor
    inner: gl.tensor
    slopes: gl.tensor | None
    sinks: gl.tensor | None
    score_args: tuple
    mask_args: tuple
    scales: tuple
    plan: gl.constexpr

    @jit
    def modified(self, s, problem, tile, which: gl.constexpr, key):
        """Scores of the block at `key` with all changes, and whether they are in natural units."""
        plan: gl.constexpr = self.plan
        member, query = tile.member + which * plan.heads_step, tile.query + which * plan.queries_step
        if plan.parts.softcap:
            # tanh(x), by two instructions of the special function unit; its approximation in one has 11 bits.
            s = 1.0 - 2.0 / (gl.exp2(s * self.inner) + 1.0)
        if plan.parts.alibi:
            s = self.biased(s, problem, tile, member, query, key)
        if plan.parts.score_mod is None:
            return s, False
        natural = s * (self.scale * LN_2)
        found = plan.parts.score_mod(natural, *indices(problem, tile, member, query, key, True, plan), *self.score_args)
        gl.static_assert(found.shape == s.shape, "score_mod returns scores of the shape that it is given")
        if same(found, natural):
            return s, False
        return gl.convert_layout(found, plan.s_registers), True

    @jit
    def biased(self, s, problem, tile, member, query, key):
        """Scores minus the distance of query and key times the slope of the head."""
        plan: gl.constexpr = self.plan
        split = by_axes(s, plan)
        layout: gl.constexpr = rows_by_lane(split.layout)
        row = gl.arange(0, plan.rows, layout)
        head = tile.head * problem.members + gl.minimum(member + row // plan.length, problem.members - 1)
        slope = gl.load(self.slopes + head) * (LOG2_E / self.scale)
        at = query + (tile.keys - tile.queries) - key + row % plan.length
        away = along((at[:, None] - lanes(split.layout, plan)).to(gl.float32)) - columns(split.layout, plan).to(
            gl.float32
        )
        return whole_of(split - along(slope[:, None]) * gl.abs(away), plan)

    @jit
    def allowed(self, s, problem, tile, which: gl.constexpr, key):
        """Scores of the block at `key`, -inf where the caller's function says that a query does not see the key."""
        # Where no column is behind the last key, loads by numbers of columns are those of neighbours, two at a time.
        if key + self.plan.block_n <= tile.keys:
            s = self.asked(s, problem, tile, which, key, False)
        else:
            s = self.asked(s, problem, tile, which, key, True)
        return s

    @jit
    def asked(self, s, problem, tile, which: gl.constexpr, key, over: gl.constexpr):
        """The same for a block that may be `over` the last key."""
        plan: gl.constexpr = self.plan
        member, query = tile.member + which * plan.heads_step, tile.query + which * plan.queries_step
        seen = plan.parts.mask_mod(*indices(problem, tile, member, query, key, over, plan), *self.mask_args)
        return gl.where(seen, s, -float("inf"))

    @jit
    def with_sinks(self, top, total, problem, tile, which: gl.constexpr):
        """The exponents and sums of weights with those of the sinks, and the factor of the results."""
        plan: gl.constexpr = self.plan
        row = gl.arange(0, plan.rows, gl.SliceLayout(1, plan.s_registers))
        member = gl.minimum(tile.member + which * plan.heads_step + row // plan.length, problem.members - 1)
        sink = gl.load(self.sinks + tile.head * problem.members + member).to(gl.float32) * LOG2_E
        highest = gl.maximum(top, sink)
        weight = gl.exp2(top - highest)
        return highest, total * weight + gl.exp2(sink - highest), weight

    @jit
    def of_rows(self, problem, tile, which: gl.constexpr):
        """The factors of scores in exponents of 2 for the rows of arrays of float8, but for scales of blocks of keys."""
        plan: gl.constexpr = self.plan
        row = gl.arange(0, plan.rows, gl.SliceLayout(1, plan.s_registers))
        member = gl.minimum(tile.member + which * plan.heads_step + row // plan.length, problem.members - 1)
        query = gl.minimum(tile.query + which * plan.queries_step + row % plan.length, tile.queries - 1)
        pointer, by_batch, by_head, by_block = self.scales[0]
        head = tile.head * problem.members + member
        scale = self.scale * gl.load(pointer + tile.batch * by_batch + head * by_head + query // TURNED * by_block)
        return scale if plan.parts.key_scales else scale * self.of_keys(problem, tile, 0)

    @jit
    def of_keys(self, problem, tile, key):
        """The scale of the keys of the block at `key`."""
        pointer, by_batch, by_head, by_block = self.scales[1]
        block = gl.minimum(key, tile.keys - 1) // TURNED
        return gl.load(pointer + tile.batch * by_batch + tile.head * by_head + block * by_block)

    @jit
    def of_values(self, problem, tile):
        """The scale of values."""
        pointer, by_batch, by_head, _ = self.scales[2]
        return gl.load(pointer + tile.batch * by_batch + tile.head * by_head)


@jit
def indices(problem, tile, member, query, key, over: gl.constexpr, plan: gl.constexpr):
    """Batch, query head, query and key of the scores of a block; of rows, and of columns of a block that may be `over` the last
    key, behind the last ones those of the last, so that a function may load by them."""
    row = gl.arange(0, plan.rows, gl.SliceLayout(1, plan.s_registers))[:, None]
    column = gl.arange(0, plan.block_n, gl.SliceLayout(0, plan.s_registers))[None, :]
    head = tile.head * problem.members
    head += gl.minimum(member + row // plan.length, problem.members - 1) if plan.heads_step else member
    query = gl.minimum(query + row % plan.length, tile.queries - 1)
    key = key + column
    return tile.batch, head, query, gl.minimum(key, tile.keys - 1) if over else key


@builtin
def same(first: Any, second: Any) -> bool:
    """Whether two values are one, at compile time."""
    return first.handle is second.handle
