"""Reduction and scan plans carried out thread by thread in plain Python, as their docstrings say."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from weft.layout import LinearLayout
from weft.layout.reduction import LaneScan, ReductionPlan, RegisterScan, ScanPlan, WarpStep

Op = Callable[[object, object], object]
Values = dict[tuple[int, int], list[object]]


def load(layout: LinearLayout, tile: list[object]) -> Values:
    """Per (lane, warp) the registers of a tile given by its flat elements."""
    registers = layout.table("register")
    places = itertools.product(range(layout.in_size("lane")), range(layout.in_size("warp")))
    return {(l, w): [tile[r ^ layout.flat(lane=l, warp=w)] for r in registers] for l, w in places}


def reduce(plan: ReductionPlan, values: Values, op: Op) -> Values:
    """The registers of the result."""
    x = {thread: [regs[r] for r in plan.registers] for thread, regs in values.items()}
    for half in plan.register_steps:
        x = {t: [op(v[i], v[i + half]) for i in range(half)] for t, v in x.items()}
    for step in plan.lane_steps:
        old, x = x, {}
        for (lane, warp), own in old.items():
            received = old[lane ^ step.mask, warp]
            partner = [received[i ^ step.registers] for i in range(len(own))]
            pair = (partner, own) if lane & step.bit else (own, partner)
            x[lane, warp] = list(map(op, *pair))
    if plan.warp_step:
        slots = exchange(plan.warp_step, x)
        x = {thread: [fold(op, row) for row in zip(*slots[thread], strict=True)] for thread in x}
    return x


def scan(plan: ScanPlan, values: Values, op: Op) -> Values:
    """The registers of the scanned tile."""
    x = {thread: [regs[r] for r in plan.registers] for thread, regs in values.items()}
    t = {thread: list(regs) for thread, regs in x.items()}
    for step in plan.steps:
        if isinstance(step, RegisterScan):
            scan_registers(step, x, t, op)
        elif isinstance(step, LaneScan):
            t = scan_lanes(step, x, t, op)
        else:
            t = scan_warps(step, x, t, op)
    return {thread: [regs[i] for i in plan.restore] for thread, regs in x.items()}


def scan_registers(step: RegisterScan, x: Values, t: Values, op: Op) -> None:
    half = step.half
    for thread, totals in t.items():
        for i, value in enumerate(x[thread]):
            group = i % len(totals)
            if group >= half:
                x[thread][i] = op(totals[group - half], value)
        t[thread] = [op(totals[g], totals[g + half]) for g in range(half)]


def scan_lanes(step: LaneScan, x: Values, t: Values, op: Op) -> Values:
    prefix: dict[tuple[int, int], list[object]] = {}
    for mask in step.masks:
        old, t = t, {}
        for (lane, warp), own in old.items():
            partner = old[lane ^ mask, warp]
            if not (lane ^ step.flip) & mask:
                t[lane, warp] = list(map(op, own, partner))
                continue
            t[lane, warp] = list(map(op, partner, own))
            known = prefix.get((lane, warp))
            prefix[lane, warp] = list(map(op, partner, known)) if known else list(partner)
    for thread, before in prefix.items():
        x[thread] = [op(before[i % len(before)], value) for i, value in enumerate(x[thread])]
    return t


def scan_warps(step: WarpStep, x: Values, t: Values, op: Op) -> Values:
    slots = exchange(step, t)
    for (lane, warp), values in x.items():
        earlier = slots[lane, warp][: step.slot(warp)]
        if earlier:
            before = [fold(op, row) for row in zip(*earlier, strict=True)]
            x[lane, warp] = [op(before[i % len(before)], value) for i, value in enumerate(values)]
    return {thread: [fold(op, row) for row in zip(*slots[thread], strict=True)] for thread in t}


def exchange(step: WarpStep, values: Values) -> dict[tuple[int, int], list[list[object]]]:
    """What each thread reads back: per slot its values. Every element of scratch memory is written once and read."""
    memory: dict[int, object] = {}
    for (lane, warp), own in values.items():
        if lane & step.lane_free or warp & step.warp_free:
            continue
        for i, value in enumerate(own):
            place = step.slot(warp) * step.size + step.index(register=i, lane=lane, warp=warp)
            assert place not in memory, "two threads write one element"
            assert place < step.elements
            memory[place] = value
    return {
        (lane, warp): [
            [memory[slot * step.size + step.index(register=i, lane=lane, warp=warp)] for i in range(len(own))]
            for slot in range(step.count)
        ]
        for (lane, warp), own in values.items()
    }


def fold(op: Op, values) -> object:
    """Combine from the left."""
    first, *rest = values
    for value in rest:
        first = op(first, value)
    return first
