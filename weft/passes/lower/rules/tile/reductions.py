"""Lowering of reductions and scans by the plans of `weft.layout.reduction`.

    %s = tile.reduce %x    -->    registers are combined within the thread, then lanes by warp.shuffle_xor, then warps through
                                  scratch shared memory

Each step operates on whole register arrays. The simulator executes the same plans on whole tiles, so its results agree bit for
bit with those of the lowered code.
"""

from __future__ import annotations

from functools import partial, reduce

from weft.analysis.commute import commutes
from weft.ir.core import Op, OpDef, Region, Value
from weft.ir.types import int32
from weft.layout import LinearLayout
from weft.layout.distributed.layouts import drop_dim
from weft.layout.linear.ends import pieces
from weft.layout.reduction import (
    LaneScan,
    LaneStep,
    OrderedPlan,
    ReductionPlan,
    RegisterScan,
    ScanPlan,
    WarpStep,
    lines,
    piece_by_piece,
    plan_ordered_reduction,
    plan_reduction,
    plan_scan,
)  # fmt: skip
from weft.ops import arith, regs, tile, warp
from weft.ops.check import linear_of
from weft.ops.regs import Table
from weft.passes.lower.combine import Values, bit_test, combine, finish, gathered, selected, slot_of, slots
from weft.passes.lower.forms import Array
from weft.passes.lower.state import Lowering, LowerRule


def lower_reduce(lo: Lowering, op: Op) -> None:
    """Combine registers, then lanes, then warps."""
    linear, axis, in_order = linear_of(op.uses[0]), op.attrs["axis"], op.attrs["in_order"]
    (region,) = op.regions
    parts = pieces(linear)
    plan = (plan_ordered_reduction if in_order else plan_reduction)(parts.layout, axis)
    forms = [lo.form(value) for value in op.uses]

    def picked(piece: int, registers: Table) -> Values:
        own = parts.registers[piece]
        return [lo.array(lo.picked(form, tuple([own[r] for r in registers]))) for form in forms]

    found: list[Values] = []
    for line in lines(linear, axis):
        each = [picked(piece, plan.registers) for piece in line]
        if in_order:
            each = [_reduced(lo, region, plan, x) for x in each]
        total = reduce(partial(combine, lo, region), each)
        found.append(total if in_order else _reduced(lo, region, plan, total))
    finish(lo, op, _joined(lo, found, drop_dim(linear, axis)))


def _joined(lo: Lowering, parts: list[Values], tile: LinearLayout) -> Values:
    """A tile's registers, from those of its pieces."""
    if len(parts) == 1:
        return parts[0]
    return gathered(lo, [lo.emit(regs.concat, *each) for each in zip(*parts, strict=True)], piece_by_piece(tile))


def _reduced(lo: Lowering, region: Region, plan: ReductionPlan | OrderedPlan, x: Values) -> Values:
    """A piece, reduced by its plan."""
    if isinstance(plan, OrderedPlan):
        return _in_order(lo, region, plan, x)
    for half in plan.register_steps:
        earlier, later = tuple(range(half)), tuple(range(half, 2 * half))
        x = combine(lo, region, gathered(lo, x, earlier), gathered(lo, x, later))
    for step in plan.lane_steps:
        x = _lanes(lo, region, step, x)
    if plan.warp_step is not None:
        first, *others = slots(lo, plan.warp_step, x)
        x = first
        for slot in others:
            x = combine(lo, region, x, slot)
    return x


def _in_order(lo: Lowering, region: Region, plan: OrderedPlan, x: Values) -> Values:
    """A reduction in element order: neighbouring elements are combined first, whichever registers, lanes or warps hold them."""
    for step in plan.steps:
        if isinstance(step, RegisterScan):
            x = _neighbours(lo, region, x, step.half)
        elif isinstance(step, LaneScan):
            for mask in step.masks:
                x, _, _ = _meet(lo, region, x, mask, step.flip)
        else:
            x, *others = slots(lo, step, x)
            for slot in others:
                x = combine(lo, region, x, slot)
    return x


def _neighbours(lo: Lowering, region: Region, totals: Values, half: int) -> Values:
    """Combine the totals of neighbouring groups within a thread."""
    low, high = tuple(range(half)), tuple(range(half, 2 * half))
    return combine(lo, region, gathered(lo, totals, low), gathered(lo, totals, high))


def _meet(lo: Lowering, region: Region, totals: Values, mask: int, flip: int) -> tuple[Values, Values, Value]:
    """Combine the totals of two lanes. Also returns the partner's totals, and whether this lane is the later of the two."""
    u: Values = [lo.emit(warp.shuffle_xor, value, mask=mask) for value in totals]
    later = bit_test(lo, lo.lane(), mask, flip)
    return combine(lo, region, selected(lo, later, u, totals), selected(lo, later, totals, u)), u, later


def _lanes(lo: Lowering, region: Region, step: LaneStep, x: Values) -> Values:
    """Each lane combines its values with its partner's. Operands are put in order of the lanes unless the function commutes."""
    partner: Values = [lo.emit(warp.shuffle_xor, value, mask=step.mask) for value in x]
    if step.registers:
        count = lo.count(Array(x[0]))
        partner = gathered(lo, partner, tuple(i ^ step.registers for i in range(count)))
    if commutes(region):
        return combine(lo, region, x, partner)
    later = bit_test(lo, lo.lane(), step.bit)
    return combine(lo, region, selected(lo, later, partner, x), selected(lo, later, x, partner))


def lower_scan(lo: Lowering, op: Op) -> None:
    """An inclusive scan: totals of groups are combined up the hierarchy of registers, lanes and warps, and at each level the
    total of the preceding groups is combined into the values."""
    linear, axis, reverse = linear_of(op.uses[0]), op.attrs["axis"], op.attrs["reverse"]
    (region,) = op.regions
    parts = pieces(linear)
    plan = plan_scan(parts.layout, axis, reverse)
    values = [lo.array(lo.form(value)) for value in op.uses]
    found: dict[int, Values] = {}
    for line in lines(linear, axis):
        before: Values | None = None
        for piece in reversed(line) if reverse else line:
            scan = _Scan(lo, region, plan, gathered(lo, values, parts.registers[piece]))
            scan.run()
            before = scan.follow(before)
            found[piece] = gathered(lo, scan.x, plan.restore)
    finish(lo, op, _joined(lo, [found[piece] for piece in sorted(found)], linear))


class _Scan:
    """The state of a scan: the values `x`, and the totals `t` of the groups that are left to combine."""

    def __init__(self, lo: Lowering, region: Region, plan: ScanPlan, values: Values) -> None:
        self.lo = lo
        self.region = region
        self.plan = plan
        self.x = gathered(lo, values, plan.registers)
        self.t = self.x
        self.count = self.left = len(plan.registers)

    def run(self) -> None:
        """All steps of the plan; the totals are then those of the whole axis."""
        for step in self.plan.steps:
            if isinstance(step, RegisterScan):
                self.registers(step)
            elif isinstance(step, LaneScan):
                self.lanes(step)
            else:
                self.warps(step)

    def follow(self, before: Values | None) -> Values:
        """Combine the totals of the pieces before into the values. Returns the totals up to the end of this piece."""
        if before is None:
            return self.t
        self.x = self.combine(self.for_values(before), self.x)
        return self.combine(before, self.t)

    def combine(self, earlier: Values, later: Values) -> Values:
        return combine(self.lo, self.region, earlier, later)

    def for_values(self, totals: Values) -> Values:
        """For each value, the entry of its group."""
        return gathered(self.lo, totals, tuple(i % self.left for i in range(self.count)))

    def registers(self, step: RegisterScan) -> None:
        """Scan neighbouring groups within the thread."""
        lo, half, left = self.lo, step.half, self.left
        upper = [i for i in range(self.count) if i % left >= half]
        before = gathered(lo, self.t, tuple(i % left - half for i in upper))
        after = self.combine(before, gathered(lo, self.x, tuple(upper)))
        place = {i: self.count + k for k, i in enumerate(upper)}
        table = tuple(place.get(i, i) for i in range(self.count))
        joined = [lo.emit(regs.concat, old, new) for old, new in zip(self.x, after, strict=True)]
        self.x = gathered(lo, joined, table)
        self.t = _neighbours(lo, self.region, self.t, half)
        self.left = half

    def lanes(self, step: LaneScan) -> None:
        """Scan across lanes by shuffles; `prefix` is the total of the preceding lanes."""
        lo = self.lo
        prefix: Values = []
        has: Value | None = None
        for mask in step.masks:
            u: Values = [lo.emit(warp.shuffle_xor, value, mask=mask) for value in self.t]
            later = bit_test(lo, lo.lane(), mask, step.flip)
            if has is None:
                prefix, has = u, later
            else:
                longer = selected(lo, has, self.combine(u, prefix), u)
                prefix = selected(lo, later, longer, prefix)
                has = lo.emit(arith.or_, has, later)
            self.t = self.combine(selected(lo, later, u, self.t), selected(lo, later, self.t, u))
        if has is not None:
            self.x = selected(lo, has, self.combine(self.for_values(prefix), self.x), self.x)

    def warps(self, step: WarpStep) -> None:
        """Scan across warps through scratch memory; `prefix` is the total of the slots before the warp's own."""
        lo = self.lo
        mine = slot_of(lo, step)
        running, *others = slots(lo, step, self.t)
        prefix = running
        for slot, total in enumerate(others, start=1):
            here = lo.emit(arith.cmp, mine, lo.constant(slot, int32), predicate="eq")
            prefix = selected(lo, here, running, prefix)
            running = self.combine(running, total)
        has = lo.emit(arith.cmp, mine, lo.constant(0, int32), predicate="ne")
        self.x = selected(lo, has, self.combine(self.for_values(prefix), self.x), self.x)
        self.t = running


RULES: dict[OpDef, LowerRule] = {
    tile.reduce: lower_reduce,
    tile.scan: lower_scan,
}
