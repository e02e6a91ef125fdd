"""Lowering of layout conversions by the plan of `weft.layout.convert`: register moves, warp shuffles, or shared memory.

%y = tile.convert %x    -->    %y = regs.gather %x              the same thread holds each element
                               %y = warp.shuffle_xor %x ...     the same warp does
                               shared.store_regs, load_regs     any thread of the block does
                               (weft.passes.lower.cluster)      another block does
"""

from __future__ import annotations

from weft.ir.core import Op, OpDef, Value
from weft.ir.types import int32
from weft.layout import LinearLayout
from weft.layout.convert.plans import Nothing, RegisterMove, SharedRoundTrip, VectorAccess, WarpShuffle, plan_conversion
from weft.layout.linear.ends import count
from weft.ops import arith, regs, shared, tile, warp
from weft.ops.check import linear_of
from weft.passes.lower import cluster as between_blocks
from weft.passes.lower.exchange import allocate, restored, storable
from weft.passes.lower.forms import Array, Form, Splat
from weft.passes.lower.state import Lowering, LowerRule


def convert(lo: Lowering, op: Op) -> None:
    """Convert a tile to another layout by the cheapest plan."""
    source, *_ = op.uses
    form, bits = lo.form(source), source.type.element.bits
    lo.define(op, converted(lo, form, linear_of(source), linear_of(op.result), bits))


def converted(
    lo: Lowering, form: Form, source: LinearLayout, target: LinearLayout, bits: int, first: bool = False,
    bar: Value | None = None,
) -> Form:  # fmt: skip
    """The form, in the target layout, of a tile with elements of `bits` bits. `first`, `bar`: see `cluster.convert`."""
    if isinstance(form, Splat) and not first:
        return Splat(form.value, count(target))
    plan = plan_conversion(source, target, bits, first)
    if isinstance(plan, Nothing):
        return form
    if isinstance(plan, RegisterMove):
        return lo.picked(form, plan.table)
    value = lo.array(form)
    moved = storable(lo, value)
    if isinstance(plan, WarpShuffle):
        moved = shuffle(lo, plan, moved)
    elif isinstance(plan, SharedRoundTrip):
        moved = round_trip(lo, plan, moved)
    else:
        moved = between_blocks.round_trip(lo, plan, moved, bar)
    return Array(restored(lo, moved, value))


def _swap(lo: Lowering, value: Value, bit: int, mask: int) -> Value:
    """Swap registers r and r ^ (1 << bit) in threads for which parity(thread & mask) is odd."""
    lanes, warps = (tuple([mask >> i & 1 for i in range(first, first + 5)]) for first in (0, 5))
    parity = lo.of_thread(lanes, warps)
    odd = lo.emit(arith.cmp, parity, lo.constant(0, int32), predicate="ne")
    swapped = lo.gather(value, tuple(r ^ 1 << bit for r in range(lo.count(Array(value)))))
    return lo.emit(arith.select, odd, swapped, value)


def shuffle(lo: Lowering, plan: WarpShuffle, value: Value) -> Value:
    """Conditional swaps of registers, shuffles (one array per source lane), and conditional swaps again."""
    value = lo.gather(value, plan.registers)
    for bit, mask in plan.pre:
        value = _swap(lo, value, bit, mask)
    rounds: dict[int, list[int]] = {}
    for j, step in enumerate(plan.steps):
        rounds.setdefault(step.lane, []).append(j)
    received = [
        _round(lo, plan, lo.gather(value, tuple(plan.steps[j].register for j in items)), lane)
        for lane, items in rounds.items()
    ]
    order = [j for items in rounds.values() for j in items]
    value = received[0] if len(received) == 1 else lo.emit(regs.concat, *received)
    value = lo.gather(value, tuple(order.index(j) for j in range(len(order))))
    for bit, mask in plan.post:
        value = _swap(lo, value, bit, mask)
    return lo.gather(value, plan.result)


def _round(lo: Lowering, plan: WarpShuffle, value: Value, lane: int) -> Value:
    """Shuffle all registers of `value` from the source lane of this thread for the constant `lane`."""
    if plan.own_lanes:
        return lo.emit(warp.shuffle_xor, value, mask=lane) if lane else value
    source = lo.of_thread(plan.lane_map[:5], plan.lane_map[5:])
    if lane:
        source = lo.emit(arith.xor, source, lo.constant(lane, int32))
    return lo.emit(warp.shuffle_idx, value, source)


def round_trip(lo: Lowering, plan: SharedRoundTrip, value: Value) -> Value:
    """Store to scratch memory in one layout and load in the other. `insert_sync` inserts the barriers."""
    memory = allocate(lo, value, plan.elements)
    lo.emit(
        shared.store_regs, memory, _thread_offset(lo, plan.store), value,
        lo.has_clear(plan.store.lane_mask, plan.store.warp_mask),
        offsets=plan.store.offsets, registers=plan.store.registers, vec=plan.store.vec,
    )  # fmt: skip
    loaded = sorted(r for group in plan.load.registers for r in group)
    slot = {register: i for i, register in enumerate(loaded)}
    registers = tuple(tuple(slot[r] for r in group) for group in plan.load.registers)
    value = lo.emit(
        shared.load_regs, memory, _thread_offset(lo, plan.load),
        offsets=plan.load.offsets, registers=registers, vec=plan.load.vec,
    )  # fmt: skip
    return lo.gather(value, tuple(slot[r] for r in plan.result))


def _thread_offset(lo: Lowering, side: VectorAccess) -> Value:
    return lo.of_thread(side.lane_bases, side.warp_bases)


RULES: dict[OpDef, LowerRule] = {tile.convert: convert}
