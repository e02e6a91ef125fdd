"""The order in which a reduction or a scan combines elements, as data that the simulator and the lowering both follow.

A plan depends on the layout only. Values are always combined as `op(earlier, later)`, every step is explicit, and every element
enters once, however many copies the layout holds. First each thread combines its own registers, then lanes exchange values in
a butterfly of shuffles, then warps exchange values through scratch memory.

The algebra: the inputs that differ only along the axis form a subspace K; inputs that repeat one element form a subspace Z of
it. The coordinates along the axis are K / Z. A plan is a basis of that quotient, chosen from registers first, then lanes, then
warps, each in increasing order along the axis: one step per basis vector.

A plan is one of a tile that ends at powers of two. The pieces of any other tile (`weft.layout.linear.ends`) that lie one behind
the other along the axis form a *line*. A reduction combines the pieces of a line, register by register, and then follows the
plan of a piece; in increasing order it follows the plan for each piece, and combines the results. A scan follows it for each
piece, and combines the total of the pieces before into each.

This module knows neither the combining operation nor the instructions that exchange values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.distributed.layouts import drop_dim
from weft.layout.linear import f2
from weft.layout.linear.ends import pieces
from weft.layout.linear.flat import xor
from weft.layout.linear.maps import LinearLayout


@dataclass(frozen=True, slots=True)
class LaneStep:
    """Exchange between lanes l and l ^ `mask`: for value i a lane receives its partner's value i ^ `registers`.

    The lane in which the highest bit of `mask` is 0 is the earlier one.
    """

    mask: int
    registers: int = 0

    @property
    def bit(self) -> int:
        """The lane bit that is 1 in the later lane."""
        return 1 << self.mask.bit_length() - 1


@dataclass(frozen=True, slots=True)
class WarpStep:
    """Exchange through scratch memory of `count` slots of `size` elements each.

    A thread writes value i to element `slot(warp) * size + index(register=i, lane=, warp=)` unless `lane & lane_free` or
    `warp & warp_free` (others write the same there); after a barrier it reads all slots at its own indices, in
    increasing order.
    """

    count: int
    slot_bases: tuple[int, ...]
    cells: LinearLayout
    lane_free: int
    warp_free: int
    flip: int = 0

    @property
    def size(self) -> int:
        """Elements of a slot."""
        return prod(self.cells.out_sizes)

    @property
    def elements(self) -> int:
        """Elements of scratch memory for one operand."""
        return self.count * self.size

    def slot(self, warp: Any) -> Any:
        """The slot that a warp writes, increasing along the axis; generic over ints and integer arrays."""
        out: Any = self.flip
        for bit, base in enumerate(self.slot_bases):
            out = out ^ (warp >> bit & 1) * base
        return out

    def index(self, **inputs: Any) -> Any:
        """The element within a slot of value `register` in a thread."""
        return self.cells.flat(**inputs)


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """The plan of a reduction of a tile along `axis`, in steps on the values x of each thread.

    1. x[i] = source register `registers[i]`: repeated registers are left out.
    2. For each `half` in `register_steps`: x[i] = op(x[i], x[i + half]) for i < half; the upper half is dead afterwards.
    3. For each step in `lane_steps`: every lane combines its own value with its partner's, the earlier lane's first.
    4. With a `warp_step`: x[i] = the slots read, combined from slot 0 up.

    Then x[i] is register i of the tile with the layout `result`, in every thread. Threads that hold copies of a result have
    combined the same pairs, so a commutative operation gives them identical bits. `in_order` says that elements are combined in
    increasing order along the axis; otherwise an operation that does not commute needs an `OrderedPlan`.
    """

    axis: int
    result: LinearLayout
    registers: tuple[int, ...]
    register_steps: tuple[int, ...]
    lane_steps: tuple[LaneStep, ...]
    warp_step: WarpStep | None
    in_order: bool

    @property
    def scratch_elements(self) -> int:
        """Elements of scratch memory for one operand."""
        return self.warp_step.elements if self.warp_step else 0


@dataclass(frozen=True, slots=True)
class RegisterScan:
    """Combine totals t[g] and t[g + half]: values of group g + half become op(t[g], x), and t[g] = op(t[g], t[g + half])."""

    half: int


@dataclass(frozen=True, slots=True)
class LaneScan:
    """Combine the totals of lanes, one bit of `masks` after another. For each mask, with u the partner's total t[g]:

    a lane is later when `(lane ^ flip) & mask`; then its prefix p[g] = op(u, p[g]) (u where there is none yet) and
    t[g] = op(u, t[g]), else t[g] = op(t[g], u). In the end x[i] = op(p[group], x[i]) in lanes that have a prefix.
    """

    masks: tuple[int, ...]
    flip: int


@dataclass(frozen=True, slots=True)
class OrderedPlan:
    """The plan of a reduction along `axis` in increasing order: neighbours first, in registers, lanes or warps.

    x[i] = source register `registers[i]`; the totals t start as x and go through the `steps` of a scan. Then t[i] is register
    i of the tile with the layout `result`, in every thread.
    """

    axis: int
    result: LinearLayout
    registers: tuple[int, ...]
    steps: tuple[RegisterScan | LaneScan | WarpStep, ...]


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The plan of an inclusive scan of a tile along `axis`, from the end with `reverse`.

    x[i] = source register `registers[i]`; the totals t start as x. Every step works on groups: with n totals left, value
    i belongs to group i % n. A WarpStep among `steps` exchanges totals: x[i] = op(slots before this warp's, x[i]) where
    there are any, and t[g] = all slots combined. Afterwards register r of the result is x[`restore[r]`]; the layout
    is unchanged.
    """

    axis: int
    reverse: bool
    registers: tuple[int, ...]
    steps: tuple[RegisterScan | LaneScan | WarpStep, ...]
    restore: tuple[int, ...]

    @property
    def scratch_elements(self) -> int:
        """Elements of scratch memory for one operand, reused from step to step."""
        return max((step.elements for step in self.steps if isinstance(step, WarpStep)), default=0)


def plan_reduction(layout: LinearLayout, axis: int) -> ReductionPlan:
    """The plan that reduces a tile of this distributed layout along `axis` (negative: from the end) in the fewest exchanges.

    Raises LayoutError when the axis is spread over the blocks of a cluster.
    """
    return _reduction(layout, _axis(layout, axis))


def plan_ordered_reduction(layout: LinearLayout, axis: int) -> ReductionPlan | OrderedPlan:
    """As `plan_reduction`, with elements combined in increasing order along the axis, for functions that do not commute.

    Raises LayoutError also when the axis is mixed with other dimensions in one hardware bit.
    """
    return _ordered(layout, _axis(layout, axis))


def plan_scan(layout: LinearLayout, axis: int, reverse: bool = False) -> ScanPlan:
    """The plan that scans a tile of this distributed layout along `axis` (negative: from the end).

    Raises LayoutError when the axis is spread over blocks, or is mixed with other dimensions in one hardware bit.
    """
    return _scan(layout, _axis(layout, axis), reverse)


def lines(layout: LinearLayout, axis: int) -> tuple[tuple[int, ...], ...]:
    """The numbers of a tile's pieces, line by line along an axis; lines are in the order of the result's pieces."""
    found: dict[tuple[int, ...], list[int]] = {}
    for number, start in enumerate(pieces(layout).starts):
        found.setdefault((*start[:axis], *start[axis + 1 :]), []).append(number)
    return tuple([tuple(line) for line in found.values()])


def piece_by_piece(layout: LinearLayout) -> tuple[int, ...]:
    """For each register of a tile, its place among those of all pieces one after another."""
    numbers = [r for own in pieces(layout).registers for r in own]
    return tuple(sorted(range(len(numbers)), key=numbers.__getitem__))


def check_ordered_reduction(layout: LinearLayout, axis: int) -> None:
    """Raise LayoutError unless elements of the layout can be combined in increasing order along the axis."""
    if not _Bits(layout, _axis(layout, axis)).is_separable:
        raise fail(errors.REDUCE_ORDER, axis=axis)


def check_scan(layout: LinearLayout, axis: int) -> None:
    """Raise LayoutError unless a tile of the layout can be scanned along the axis."""
    if not _Bits(layout, _axis(layout, axis)).is_separable:
        raise fail(errors.SCAN_LAYOUT, axis=axis)


class _Direction(NamedTuple):
    """A step along the axis by `distance`, taken by flipping these input bits."""

    distance: int
    inputs: int


class _Bits:
    """The inputs of a layout as one bit string, registers lowest, with the image of each bit split at an axis."""

    def __init__(self, layout: LinearLayout, axis: int) -> None:
        self.layout = layout
        self.columns = layout.flat_columns
        self.along = tuple(layout.coordinates(column)[axis] for column in self.columns)
        others = [d for index, d in enumerate(layout.out_dims) if index != axis]
        self.across = layout.sublayout(layout.in_dims, others).flat_columns
        self.registers, lanes, warps = (layout.in_bits(d) for d in ("register", "lane", "warp"))
        self.threads = self.registers + lanes
        self.warps = self.threads + warps

    def directions(self, end: int, known: Sequence[_Direction]) -> list[_Direction]:
        """A basis, in increasing order, of the steps along the axis that the first `end` bits add to the known ones."""
        new: list[_Direction] = []
        for inputs in f2.kernel(self.across[:end]):
            found = _reduced(_Direction(f2.apply(self.along, inputs), inputs), [*known, *new])
            if found.distance:
                new = [_reduced(other, [found]) for other in new] + [found]
        return sorted(new)

    def lane_mask(self, inputs: int) -> int:
        return (inputs & (1 << self.threads) - 1) >> self.registers

    def register_mask(self, inputs: int) -> int:
        return inputs & (1 << self.registers) - 1

    def warp_mask(self, inputs: int) -> int:
        return (inputs & (1 << self.warps) - 1) >> self.threads

    @property
    def is_separable(self) -> bool:
        """Every input bit moves along the axis by a power of two or not at all, and no two by the same."""
        moving = [(a, c) for a, c in zip(self.along, self.across, strict=True) if a]
        distances = [a for a, _ in moving]
        pure = all(c == 0 and f2.is_power_of_two(a) for a, c in moving)
        return pure and len(set(distances)) == len(distances)


def _reduced(direction: _Direction, basis: Iterable[_Direction]) -> _Direction:
    """The direction with the leading bits of the basis cleared from its distance."""
    distance, inputs = direction
    for other in sorted(basis, reverse=True):
        if distance >> other.distance.bit_length() - 1 & 1:
            distance, inputs = distance ^ other.distance, inputs ^ other.inputs
    return _Direction(distance, inputs)


def _axis(layout: LinearLayout, axis: int) -> int:
    rank = len(layout.out_dims)
    if not -rank <= axis < rank:
        raise fail(errors.AXIS, axis=axis, rank=rank, first=-rank, last=rank - 1)
    return axis % rank


@lru_cache(maxsize=1 << 12)
def _reduction(layout: LinearLayout, axis: int) -> ReductionPlan:
    bits = _Bits(layout, axis)
    in_thread = bits.directions(bits.registers, [])
    in_warp = bits.directions(bits.threads, in_thread)
    in_block = bits.directions(bits.warps, [*in_thread, *in_warp])
    found = [*in_thread, *in_warp, *in_block]
    _check_blocks(bits, axis, found)
    kept = f2.independent(bits.across[: bits.registers])
    units = [1 << bit for bit in range(bits.registers) if kept >> bit & 1]
    registers = _sums([*units, *(direction.inputs for direction in reversed(in_thread))])
    result = drop_dim(layout, axis)
    halves = tuple(len(registers) >> step + 1 for step in range(len(in_thread)))
    in_order = bits.is_separable and [d.distance for d in found] == [1 << step for step in range(len(found))]
    lanes = tuple(_lane_step(bits, result, direction) for direction in in_warp)
    warps = _warp_step(bits, in_block, result)
    return ReductionPlan(axis, result, registers, halves, lanes, warps, in_order)


@lru_cache(maxsize=1 << 12)
def _ordered(layout: LinearLayout, axis: int) -> ReductionPlan | OrderedPlan:
    plan, bits = _reduction(layout, axis), _Bits(layout, axis)
    if plan.in_order:
        return plan
    check_ordered_reduction(layout, axis)
    moves, units, own = _moves(bits)
    values = [*units, *own]
    return OrderedPlan(axis, plan.result, _sums(values), _scan_steps(bits, axis, moves, values, reverse=False))


def _moves(bits: _Bits) -> tuple[list[_Direction], list[int], list[int]]:
    """Of a separable layout: the steps along the axis, the registers across it, and those along it from the last."""
    moves = sorted(_Direction(a, 1 << bit) for bit, a in enumerate(bits.along) if a)
    kept = f2.independent(bits.across[: bits.registers])
    units = [1 << bit for bit in range(bits.registers) if kept >> bit & 1]
    return moves, units, [move.inputs for move in reversed(moves) if bits.register_mask(move.inputs)]


def _check_blocks(bits: _Bits, axis: int, found: Sequence[_Direction]) -> None:
    if bits.directions(len(bits.columns), found):
        raise fail(errors.REDUCE_BLOCKS, axis=axis)


def _sums(vectors: Sequence[int]) -> tuple[int, ...]:
    """Sums of all subsets: bit i of the position says whether the subset has vector i."""
    out = [0]
    for vector in vectors:
        out += [vector ^ other for other in out]
    return tuple(out)


def _lane_step(bits: _Bits, result: LinearLayout, direction: _Direction) -> LaneStep:
    moved = f2.apply(bits.across[: bits.registers], bits.register_mask(direction.inputs))
    _, registers = f2.Span(result.columns["register"]).reduce(moved)
    return LaneStep(bits.lane_mask(direction.inputs), registers)


def _warp_step(bits: _Bits, directions: Sequence[_Direction], cells: LinearLayout, flip: int = 0) -> WarpStep | None:
    if not directions:
        return None
    repeats = [bits.warp_mask(inputs) for inputs in f2.kernel(bits.columns[: bits.warps])]
    warps = [1 << bit for bit in range(bits.warps - bits.threads)]
    # Coordinates of a warp bit in a basis whose first vectors repeat elements and whose others step along the axis.
    span = f2.Span([*repeats, *(bits.warp_mask(direction.inputs) for direction in directions), *warps])
    count = 1 << len(directions)
    slots = tuple(span.reduce(bit)[1] >> len(repeats) & count - 1 for bit in warps)
    size = prod(cells.out_sizes)
    columns = [slot * size | column for slot, column in zip(slots, cells.columns["warp"], strict=True)]
    lane_free, warp_free = _free(cells, columns)
    return WarpStep(count, slots, cells, lane_free, warp_free, flip)


def _free(cells: LinearLayout, warps: Sequence[int]) -> tuple[int, int]:
    """Lane and warp bits that reach no new element, given registers and lower bits."""
    registers, lanes = cells.columns["register"], cells.columns["lane"]
    fresh = f2.independent([*registers, *lanes, *warps])
    free = ~fresh & (1 << len(registers) + len(lanes) + len(warps)) - 1
    free >>= len(registers)
    return free & (1 << len(lanes)) - 1, free >> len(lanes)


@lru_cache(maxsize=1 << 12)
def _scan(layout: LinearLayout, axis: int, reverse: bool) -> ScanPlan:
    check_scan(layout, axis)
    bits = _Bits(layout, axis)
    moves, units, own = _moves(bits)
    if any(move.inputs >> bits.warps for move in moves):
        raise fail(errors.REDUCE_BLOCKS, axis=axis)
    flip = ((1 << len(own)) - 1) << len(units) if reverse else 0
    table = _sums([*units, *own])
    registers = tuple(table[index ^ flip] for index in range(len(table)))
    places = f2.Span(f2.apply(bits.columns, vector) for vector in (*units, *own))
    restore = _sums([places.reduce(column)[1] for column in layout.columns["register"]])
    steps = _scan_steps(bits, axis, moves, [*units, *own], reverse)
    return ScanPlan(axis, reverse, registers, steps, tuple(index ^ flip for index in restore))


def _scan_steps(
    bits: _Bits, axis: int, moves: Sequence[_Direction], values: Sequence[int], reverse: bool
) -> tuple[RegisterScan | LaneScan | WarpStep, ...]:
    """One step per run of neighbouring axis bits of the same hardware level; register bits are separate steps."""
    steps: list[RegisterScan | LaneScan | WarpStep] = []
    left, done = list(values), 0
    while done < len(moves):
        if bits.register_mask(moves[done].inputs):
            left.pop()
            steps.append(RegisterScan(1 << len(left)))
            done += 1
            continue
        of_lanes = bits.lane_mask(moves[done].inputs) != 0
        run = _run(bits, moves[done:], of_lanes)
        done += len(run)
        if of_lanes:
            masks = tuple(bits.lane_mask(move.inputs) for move in run)
            steps.append(LaneScan(masks, xor(masks) if reverse else 0))
        else:
            flip = (1 << len(run)) - 1 if reverse else 0
            step = _warp_step(bits, run, _cells(bits, axis, left, done), flip)
            steps += [step] if step else []
    return tuple(steps)


def _run(bits: _Bits, moves: Sequence[_Direction], of_lanes: bool) -> list[_Direction]:
    mask = bits.lane_mask if of_lanes else bits.warp_mask
    out: list[_Direction] = []
    for move in moves:
        if not mask(move.inputs):
            break
        out.append(move)
    return out


def _cells(bits: _Bits, axis: int, left: Sequence[int], done: int) -> LinearLayout:
    """The layout of a scan's totals: the layout without the axis bits combined so far, over the values that are left."""
    layout = bits.layout
    cut = [tuple(v >> done if d == axis else v for d, v in enumerate(layout.coordinates(c))) for c in bits.columns]
    outs = [(d, size >> done if i == axis else size) for i, (d, size) in enumerate(layout.outs)]
    images = [tuple(map(xor, zip(*(cut[i] for i in range(len(cut)) if v >> i & 1), strict=True))) for v in left]
    bases = {
        "register": images,
        "lane": cut[bits.registers : bits.threads],
        "warp": cut[bits.threads : bits.warps],
        "block": cut[bits.warps :],
    }
    return LinearLayout.make(bases, outs)
