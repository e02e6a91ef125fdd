"""Conversion plans: the conversion of a tile from one distributed layout to another, as data.

A plan describes the actions of each thread; the simulator executes it, the CUDA back end emits it, `describe` prints it.
There are five kinds, and the cheapest possible one is chosen:

1. `Nothing`: the layouts are equal.
2. `RegisterMove`: every thread already has its elements, in other registers. This is free: the compiler renames registers.
3. `WarpShuffle`: every warp already has its elements (`weft.layout.convert.shuffle`).
4. `SharedRoundTrip`: the general case within a block (`weft.layout.convert.round_trip`).
5. `ClusterRoundTrip`: blocks of a cluster hold different parts before and after (`weft.layout.convert.across`).

Kinds 3 and 4 are compared by the prices in `weft.layout.cost`: 4 for a shuffle, 2 for a select, 4 per wavefront and 1 per
shared access, 120 for the barrier. Layouts are linear layouts with inputs register, lane, warp and block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.convert.across import ClusterRoundTrip, plan_across
from weft.layout.convert.round_trip import SharedRoundTrip, plan_shared
from weft.layout.convert.shuffle import ShuffleStep, WarpShuffle, plan_shuffle
from weft.layout.cost import Cost
from weft.layout.linear.columns import Columns, columns, distinct_registers
from weft.layout.linear.ends import Pieces, pieces
from weft.layout.linear.f2 import Span
from weft.layout.linear.maps import LinearLayout
from weft.layout.shared.vectors import VectorAccess, repeated, spread

__all__ = [
    "VectorAccess",
    "ClusterRoundTrip",
    "Nothing",
    "Plan",
    "RegisterMove",
    "SharedRoundTrip",
    "ShuffleStep",
    "WarpShuffle",
    "describe",
    "is_trivial",
    "plan_conversion",
]


@dataclass(frozen=True, slots=True)
class Nothing:
    """The layouts are equal: the tile stays as it is."""

    def cost(self) -> Cost:
        """Price and words."""
        return Cost(0, "nothing to do")


@dataclass(frozen=True, slots=True)
class RegisterMove:
    """Destination register r of a thread is its own source register `table[r]`."""

    table: tuple[int, ...]

    def cost(self) -> Cost:
        """Price and words. Renaming registers is free."""
        return Cost(0, f"{len(self.table)} registers renamed")


Plan = Nothing | RegisterMove | WarpShuffle | SharedRoundTrip | ClusterRoundTrip


@lru_cache(maxsize=4096)
def plan_conversion(src: LinearLayout, dst: LinearLayout, bits: int, first: bool = False) -> Plan:
    """The cheapest plan that converts a tile from layout `src` to layout `dst`; `bits` is the element's width.

    `first`: of the blocks that hold an element only the one of lowest rank has a valid copy. Raises LayoutError if the layouts
    differ in shape or in threads.
    """
    if src == dst and not first:
        return Nothing()
    before, after = columns(src), columns(dst)
    _check(src, dst, before, after)
    if not src.is_whole:
        return _by_pieces(src, dst, bits, first)
    if first or _moves_between_blocks(before, after):
        return plan_across(before, after, bits, first)
    if move := _plan_registers(before, after):
        return move
    shared = plan_shared(before, after, bits)
    shuffle = plan_shuffle(before, after, bits)
    return shared if shuffle is None or shared.cost() < shuffle.cost() else shuffle


def is_trivial(plan: Plan) -> bool:
    """Whether a plan costs nothing, as `convert_layout(..., assert_trivial=True)` demands."""
    return isinstance(plan, Nothing | RegisterMove)


def describe(plan: Plan) -> str:
    """The cost of a plan as text."""
    return plan.cost().text


def _check(src: LinearLayout, dst: LinearLayout, before: Columns, after: Columns) -> None:
    if src.sizes != dst.sizes:
        raise fail(errors.CONVERT_SHAPE, src=list(src.sizes), dst=list(dst.sizes))
    if len(before.thread) != len(after.thread):
        raise fail(errors.CONVERT_THREADS, src=1 << len(before.warp), dst=1 << len(after.warp))


def _by_pieces(src: LinearLayout, dst: LinearLayout, bits: int, first: bool) -> Plan:
    """The plan of one piece, for all pieces of a tile that ends before a power of two."""
    source, target = pieces(src), pieces(dst)
    plan = plan_conversion(source.layout, target.layout, bits, first)
    if isinstance(plan, Nothing):
        plan = RegisterMove(tuple(range(len(source.registers[0]))))
    if isinstance(plan, RegisterMove):
        return RegisterMove(_spread([tuple([own[r] for r in plan.table]) for own in source.registers], target))
    if isinstance(plan, WarpShuffle):
        return _shuffled(plan, source, target)
    if isinstance(plan, ClusterRoundTrip):
        raise fail(errors.CONVERT_END_BLOCKS, shape=list(src.sizes))
    step = plan.elements
    return replace(
        plan,
        elements=step * len(source.starts),
        store=repeated(_apart(plan.store, step, len(source.starts)), source.registers),
        load=repeated(_apart(plan.load, step, len(target.starts)), target.registers),
        result=spread([plan.result] * len(target.starts), target.registers),
    )


def _apart(access: VectorAccess, step: int, count: int) -> list[VectorAccess]:
    """The access in `count` parts of a memory that are `step` elements apart."""
    return [replace(access, offsets=tuple([part * step + at for at in access.offsets])) for part in range(count)]


def _spread(entries: list[tuple[int, ...]], target: Pieces) -> tuple[int, ...]:
    """A table for the registers of a tile, from those for the registers of each piece."""
    table = {
        r: entry
        for own, part in zip(target.registers, entries, strict=True)
        for r, entry in zip(own, part, strict=True)
    }
    return tuple([table[r] for r in range(len(table))])


def _shuffled(plan: WarpShuffle, source: Pieces, target: Pieces) -> WarpShuffle:
    """The shuffle of each piece, in the same rounds: the lists of all pieces one after another."""
    given, taken = len(plan.registers), len(plan.steps)
    parts = range(len(source.starts))
    return replace(
        plan,
        registers=tuple([own[r] for own in source.registers for r in plan.registers]),
        steps=tuple([ShuffleStep(p * given + step.register, step.lane) for p in parts for step in plan.steps]),
        result=_spread([tuple([p * taken + at for at in plan.result]) for p in parts], target),
    )


def crosses(plan: Plan) -> bool:
    """Whether the blocks of a cluster exchange elements."""
    return isinstance(plan, ClusterRoundTrip) and plan.crosses


def _moves_between_blocks(before: Columns, after: Columns) -> bool:
    """Whether a block's elements afterwards are not those that its threads hold before."""
    inside = Span((*before.register, *before.thread))
    crossing = any(column not in inside for column in (*after.register, *after.thread))
    return crossing or any(a != b for a, b in zip_longest(before.block, after.block, fillvalue=0))


def _plan_registers(before: Columns, after: Columns) -> RegisterMove | None:
    if before.thread != after.thread:
        return None
    held = distinct_registers(before.register)
    span = Span(held.columns)
    images = [span.solve(column) for column in after.register]
    if None in images:
        return None
    table = [0]
    for image in images:
        table += [position ^ (image or 0) for position in table]
    return RegisterMove(tuple(held.numbers[position] for position in table))
