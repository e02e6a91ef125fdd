"""Lowering of reductions and scans: the plans of `weft.layout.reduction`, spelled in operations.

All steps work on whole arrays, so a step over n registers is one operation. The simulator follows the same plans on whole
tiles, which is why numbers agree bit for bit.
"""

from __future__ import annotations

from weft.analysis.commute import commutes
from weft.ir.core import Op, OpDef, Region, Value
from weft.ir.types import int32
from weft.layout.reduction import (
    LaneScan,
    LaneStep,
    OrderedPlan,
    RegisterScan,
    ScanPlan,
    WarpStep,
    plan_ordered_reduction,
    plan_reduction,
    plan_scan,
)  # fmt: skip
from weft.ops import arith, reduce, regs
from weft.passes.lower.combine import Values, bit_test, combine, finish, gathered, selected, slot_of, slots
from weft.passes.lower.forms import Array
from weft.passes.lower.shape import linear_of
from weft.passes.lower.state import Lowering, LowerRule


def lower_reduce(lo: Lowering, op: Op) -> None:
    """Registers, then lanes, then warps."""
    operands = tuple(op.uses)
    (region,) = op.regions
    plan = (plan_ordered_reduction if op.attrs["in_order"] else plan_reduction)(
        linear_of(operands[0]), op.attrs["axis"]
    )
    x = [lo.array(lo.picked(lo.form(value), plan.registers)) for value in operands]
    if isinstance(plan, OrderedPlan):
        finish(lo, op, _in_order(lo, region, plan, x))
        return
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
    finish(lo, op, x)


def _in_order(lo: Lowering, region: Region, plan: OrderedPlan, x: Values) -> Values:
    """Neighbours first, wherever they lie."""
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
    """Totals of neighbouring groups of one thread."""
    low, high = tuple(range(half)), tuple(range(half, 2 * half))
    return combine(lo, region, gathered(lo, totals, low), gathered(lo, totals, high))


def _meet(lo: Lowering, region: Region, totals: Values, mask: int, flip: int) -> tuple[Values, Values, Value]:
    """Totals of two lanes, what the partner's were, and whether this lane is the later one."""
    u: Values = [lo.emit(regs.shuffle_xor, value, mask=mask) for value in totals]
    later = bit_test(lo, lo.lane(), mask, flip)
    return combine(lo, region, selected(lo, later, u, totals), selected(lo, later, totals, u)), u, later


def _lanes(lo: Lowering, region: Region, step: LaneStep, x: Values) -> Values:
    """Every lane combines its values with its partner's, the earlier lane's first."""
    partner: Values = [lo.emit(regs.shuffle_xor, value, mask=step.mask) for value in x]
    if step.registers:
        count = lo.count(Array(x[0]))
        partner = gathered(lo, partner, tuple(i ^ step.registers for i in range(count)))
    if commutes(region):
        return combine(lo, region, x, partner)
    later = bit_test(lo, lo.lane(), step.bit)
    return combine(lo, region, selected(lo, later, partner, x), selected(lo, later, x, partner))


def lower_scan(lo: Lowering, op: Op) -> None:
    """The totals of ever larger runs of elements go up the hierarchy; what lies before an element comes down to it."""
    operands = tuple(op.uses)
    plan = plan_scan(linear_of(operands[0]), op.attrs["axis"], op.attrs["reverse"])
    scan = _Scan(lo, op.regions[0], plan, [lo.array(lo.form(value)) for value in operands])
    for step in plan.steps:
        if isinstance(step, RegisterScan):
            scan.registers(step)
        elif isinstance(step, LaneScan):
            scan.lanes(step)
        else:
            scan.warps(step)
    finish(lo, op, gathered(lo, scan.x, plan.restore))


class _Scan:
    """A scan under way: the values `x`, and the totals `t` of the groups that are left."""

    def __init__(self, lo: Lowering, region: Region, plan: ScanPlan, values: Values) -> None:
        self.lo = lo
        self.region = region
        self.x = gathered(lo, values, plan.registers)
        self.t = self.x
        self.count = self.left = len(plan.registers)

    def combine(self, earlier: Values, later: Values) -> Values:
        return combine(self.lo, self.region, earlier, later)

    def for_values(self, totals: Values) -> Values:
        """For each value, its group's entry."""
        return gathered(self.lo, totals, tuple(i % self.left for i in range(self.count)))

    def registers(self, step: RegisterScan) -> None:
        """Totals of neighbouring groups meet in the thread."""
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
        """Totals meet across lanes; a lane keeps what lies before it as a prefix."""
        lo = self.lo
        prefix: Values = []
        has: Value | None = None
        for mask in step.masks:
            u: Values = [lo.emit(regs.shuffle_xor, value, mask=mask) for value in self.t]
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
        """Totals meet in scratch memory; a warp takes what the slots before its own hold."""
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
    reduce.reduce: lower_reduce,
    reduce.scan: lower_scan,
}
