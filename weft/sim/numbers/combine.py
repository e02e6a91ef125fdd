"""Reductions and scans in the order of their plans (`weft.layout.reduction`), so that results equal a GPU's bit for bit.

Operands are (threads, values) arrays. The author's combine function runs on whole arrays, one step of the plan at a time.
Shuffles and exchange through shared memory are indexing.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from weft.ir.core import Region
from weft.layout import WARP_SIZE, LinearLayout
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
)
from weft.sim.machine.data import Array, Data, arange, chosen, moved, stacked
from weft.sim.machine.tasks import Task, execute
from weft.sim.machine.wait import Wait

Values = tuple[Data, ...]
Running = Generator[Wait, None, Values]
Scanning = Generator[Wait, None, tuple[Values, Values]]


def combine(task: Task, region: Region, earlier: Values, later: Values) -> Running:
    """Apply the combine function to arrays; results have the operands' shape."""
    shape = np.shape(earlier[0].array)
    results = yield from execute(task, region, (*earlier, *later))
    return tuple(moved(data, lambda array: np.broadcast_to(array, shape)) for data in results)


def picked(values: Values, index: object) -> Values:
    """The same index of every operand."""
    return tuple(moved(data, lambda array: array[index]) for data in values)


def joined(parts: Sequence[Values]) -> Values:
    """Concatenate every operand's parts along the last axis."""
    columns = zip(*parts, strict=True)
    return tuple(stacked(list(column), lambda arrays: np.concatenate(arrays, axis=1)) for column in columns)


def either(condition: Array, first: Values, second: Values) -> Values:
    """For every operand, `first` where the condition (threads, 1) is True, else `second`."""
    return tuple(chosen(condition, a, b) for a, b in zip(first, second, strict=True))


def count_of(values: Values) -> int:
    """The number of values per thread."""
    return values[0].array.shape[1]


def _threads(values: Values) -> Array:
    return arange(values[0].array.shape[0])


def reduce_tile(task: Task, region: Region, layout: LinearLayout, axis: int, in_order: bool, values: Values) -> Running:
    """Reduce a tile's registers, line by line of its pieces. Result i of a thread is register i of the result's layout."""
    parts = pieces(layout)
    plan = (plan_ordered_reduction if in_order else plan_reduction)(parts.layout, axis)
    found: list[Values] = []
    for line in lines(layout, axis):
        each = [picked(values, np.s_[:, np.array(parts.registers[piece])[list(plan.registers)]]) for piece in line]
        if in_order:
            for number, x in enumerate(each):
                each[number] = yield from reduce(task, region, plan, x)
        total = each[0]
        for x in each[1:]:
            total = yield from combine(task, region, total, x)
        if not in_order:
            total = yield from reduce(task, region, plan, total)
        found.append(total)
    return picked(joined(found), np.s_[:, list(piece_by_piece(drop_dim(layout, axis)))])


def reduce(task: Task, region: Region, plan: ReductionPlan | OrderedPlan, x: Values) -> Running:
    """Execute a reduction plan on the plan's `registers` of a tile. Result i of a thread is register i of the plan's `result`
    layout."""
    if isinstance(plan, OrderedPlan):
        for step in plan.steps:
            x = yield from _totals(task, region, step, x)
        return x
    for half in plan.register_steps:
        x = yield from combine(task, region, picked(x, np.s_[:, :half]), picked(x, np.s_[:, half : 2 * half]))
    for step in plan.lane_steps:
        x = yield from _meet_lane(task, region, step, x)
    if plan.warp_step is None:
        return x
    slots = exchange(plan.warp_step, x)
    x = slots[0]
    for slot in slots[1:]:
        x = yield from combine(task, region, x, slot)
    return x


def _totals(task: Task, region: Region, step: RegisterScan | LaneScan | WarpStep, totals: Values) -> Running:
    """Combine the totals of neighbouring groups."""
    if isinstance(step, RegisterScan):
        return (yield from _neighbours(task, region, step.half, totals))
    if isinstance(step, LaneScan):
        for mask in step.masks:
            totals, _, _ = yield from _meet(task, region, mask, step.flip, totals)
        return totals
    first, *others = exchange(step, totals)
    for slot in others:
        first = yield from combine(task, region, first, slot)
    return first


def _neighbours(task: Task, region: Region, half: int, totals: Values) -> Running:
    """Combine the totals of neighbouring groups of one thread."""
    low, high = picked(totals, np.s_[:, :half]), picked(totals, np.s_[:, half : 2 * half])
    return (yield from combine(task, region, low, high))


def _meet(
    task: Task, region: Region, mask: int, flip: int, totals: Values
) -> Generator[Wait, None, tuple[Values, Values, Array]]:
    """Combine the totals of two lanes. Returns the result, the partner's totals, and a mask of the later lanes."""
    threads = _threads(totals)
    partner = picked(totals, threads ^ mask)
    later = (((threads % WARP_SIZE) ^ flip) & mask != 0)[:, None]
    met = yield from combine(task, region, either(later, partner, totals), either(later, totals, partner))
    return met, partner, later


def _meet_lane(task: Task, region: Region, step: LaneStep, x: Values) -> Running:
    threads = _threads(x)
    partner = picked(x, np.ix_(threads ^ step.mask, arange(count_of(x)) ^ step.registers))
    later = ((threads & step.bit) != 0)[:, None]
    return (yield from combine(task, region, either(later, partner, x), either(later, x, partner)))


def exchange(step: WarpStep, x: Values) -> list[Values]:
    """Exchange through scratch memory: for each slot in increasing order, its values at the thread's own indices."""
    threads = _threads(x)[:, None]
    lane, warp = threads % WARP_SIZE, threads // WARP_SIZE
    index = np.broadcast_to(step.index(register=arange(count_of(x))[None, :], lane=lane, warp=warp), x[0].array.shape)
    writes = np.broadcast_to(((lane & step.lane_free) == 0) & ((warp & step.warp_free) == 0), index.shape)
    cells = (step.slot(warp) * step.size + index)[writes]

    def through(array: Array) -> Array:
        memory = np.zeros(step.elements, array.dtype)
        memory[cells] = array[writes]
        return memory

    scratch = [moved(data, through) for data in x]
    return [picked(tuple(scratch), slot * step.size + index) for slot in range(step.count)]


def scan_tile(task: Task, region: Region, layout: LinearLayout, axis: int, reverse: bool, values: Values) -> Running:
    """Scan a tile's registers, piece by piece along its lines; results are in the tile's registers again."""
    parts = pieces(layout)
    plan = plan_scan(parts.layout, axis, reverse)
    found: dict[int, Values] = {}
    for line in lines(layout, axis):
        before: Values | None = None
        for piece in reversed(line) if reverse else line:
            own = picked(values, np.s_[:, list(parts.registers[piece])])
            x, totals = yield from scan(task, region, plan, own)
            if before is not None:
                groups = arange(count_of(x)) % count_of(before)
                x = yield from combine(task, region, picked(before, np.s_[:, groups]), x)
                totals = yield from combine(task, region, before, totals)
            before = totals
            found[piece] = picked(x, np.s_[:, list(plan.restore)])
    return picked(joined([found[piece] for piece in sorted(found)]), np.s_[:, list(piece_by_piece(layout))])


def scan(task: Task, region: Region, plan: ScanPlan, values: Values) -> Scanning:
    """Execute a scan plan on a tile's registers: the values in the plan's order, and the totals of the whole axis."""
    x = picked(values, np.s_[:, list(plan.registers)])
    totals = x
    for step in plan.steps:
        if isinstance(step, RegisterScan):
            x, totals = yield from _scan_registers(task, region, step.half, x, totals)
        elif isinstance(step, LaneScan):
            x, totals = yield from _scan_lanes(task, region, step, x, totals)
        else:
            x, totals = yield from _scan_warps(task, region, step, x, totals)
    return x, totals


def _scan_registers(task: Task, region: Region, half: int, x: Values, totals: Values) -> Scanning:
    number = arange(count_of(x)) % (2 * half)
    later = np.flatnonzero(number >= half)
    after = yield from combine(task, region, picked(totals, np.s_[:, number[later] - half]), picked(x, np.s_[:, later]))
    order = np.argsort(np.r_[np.flatnonzero(number < half), later])
    x = picked(joined([picked(x, np.s_[:, number < half]), after]), np.s_[:, order])
    return x, (yield from _neighbours(task, region, half, totals))


def _scan_lanes(task: Task, region: Region, step: LaneScan, x: Values, totals: Values) -> Scanning:
    threads = _threads(x)
    prefix = totals
    has_prefix = np.zeros((threads.size, 1), bool)
    for mask in step.masks:
        met, partner, later = yield from _meet(task, region, mask, step.flip, totals)
        with task.only(later & has_prefix):
            longer = yield from combine(task, region, partner, prefix)
        prefix = either(later, either(has_prefix, longer, partner), prefix)
        has_prefix = has_prefix | later
        totals = met
    return (yield from _prepend(task, region, has_prefix, prefix, x)), totals


def _scan_warps(task: Task, region: Region, step: WarpStep, x: Values, totals: Values) -> Scanning:
    own = step.slot(_threads(x)[:, None] // WARP_SIZE)
    slots = exchange(step, totals)
    prefix = total = slots[0]
    for number, slot in enumerate(slots[1:], 1):
        prefix = either(own == number, total, prefix)
        total = yield from combine(task, region, total, slot)
    return (yield from _prepend(task, region, own > 0, prefix, x)), total


def _prepend(task: Task, region: Region, condition: Array, prefix: Values, x: Values) -> Running:
    """`x[i] = op(prefix[group of i], x[i])` in threads where the condition is True."""
    groups = arange(count_of(x)) % count_of(prefix)
    with task.only(condition):
        longer = yield from combine(task, region, picked(prefix, np.s_[:, groups]), x)
    return either(condition, longer, x)
