"""The author's combine function of reductions and scans, applied to register arrays, and the exchange of values between warps.

^(%a, %b): arith.add %a, %b    -->    %c = arith.add %earlier, %later       on arrays of n registers
"""

from __future__ import annotations

from weft.ir.core import Op, Region, Value
from weft.ir.types import RegsType, ScalarType, int32
from weft.layout.reduction import WarpStep
from weft.ops import arith, elements, regs, shared
from weft.passes.lower.exchange import allocate, restored, storable
from weft.passes.lower.forms import Array
from weft.passes.lower.state import Lowering

Values = list[Value]


def combine(lo: Lowering, region: Region, earlier: Values, later: Values) -> Values:
    """Apply the function register by register. Its arguments are all operands of the earlier elements, then those of the later
    ones. A function with control flow or side effects is kept as the region of a `map_elements`."""
    arguments = [*earlier, *later]
    if any(op.regions or not (op.kind.pure or op.kind.terminator) for op in region.ops):
        return list(lo.create(elements.map_elements, tuple(arguments), {"pack": 1}, (lo.copy_region(region),)))
    lo.env.update(zip(region.args, arguments, strict=True))
    for op in region.ops[:-1]:
        _apply(lo, op)
    count = lo.count(Array(earlier[0]))
    return [_as_array(lo, lo.env[value], count) for value in region.terminator.uses]


def _as_array(lo: Lowering, value: Value, count: int) -> Value:
    return value if isinstance(value.type, RegsType) else lo.emit(regs.splat, value, count=count)


def _apply(lo: Lowering, op: Op) -> None:
    """Apply one scalar operation of the function to arrays. If all operands are scalars, it stays scalar."""
    operands = [lo.env[value] for value in op.uses]
    counts = [v.type.count for v in operands if isinstance(v.type, RegsType)]
    if counts:
        operands = [_as_array(lo, value, counts[0]) for value in operands]
    for result, value in zip(op.results, lo.create(op.kind, tuple(operands), op.attrs), strict=True):
        lo.env[result] = value


def gathered(lo: Lowering, values: Values, table: tuple[int, ...]) -> Values:
    """Gather the same registers of each operand's array."""
    return [lo.gather(value, table) for value in values]


def selected(lo: Lowering, condition: Value, lhs: Values, rhs: Values) -> Values:
    """`lhs` in threads in which the condition holds, else `rhs`."""
    return [lo.emit(arith.select, condition, a, b) for a, b in zip(lhs, rhs, strict=True)]


def bit_test(lo: Lowering, index: Value, mask: int, flip: int = 0) -> Value:
    """The predicate `((index ^ flip) & mask) != 0` of a thread."""
    with lo.at_entry():
        if flip:
            index = lo.emit(arith.xor, index, lo.constant(flip, int32))
        masked = lo.emit(arith.and_, index, lo.constant(mask, int32))
        return lo.emit(arith.cmp, masked, lo.constant(0, int32), predicate="ne")


def slots(lo: Lowering, step: WarpStep, values: Values) -> list[Values]:
    """Store each warp's values to its slot of scratch memory and load all slots: per slot, one array per operand."""
    count = lo.count(Array(values[0]))
    cells = step.cells.columns
    within = [0]
    for column in cells["register"]:
        within += [entry ^ column for entry in within]
    reading = lo.of_thread(cells["lane"], cells["warp"])
    placed = tuple([column ^ base * step.size for column, base in zip(cells["warp"], step.slot_bases, strict=True)])
    writing = lo.of_thread(cells["lane"], placed)
    own = tuple(within[i] ^ step.flip * step.size for i in range(count))
    every = tuple(slot * step.size ^ within[i] for slot in range(step.count) for i in range(count))
    out: list[Values] = [[] for _ in range(step.count)]
    for value in values:
        data = storable(lo, value)
        memory = allocate(lo, data, step.elements)
        lo.emit(
            shared.store_regs, memory, writing, data, lo.has_clear(step.lane_free, step.warp_free),
            offsets=own, registers=tuple((i,) for i in range(count)), vec=1,
        )  # fmt: skip
        loaded = lo.emit(
            shared.load_regs, memory, reading, offsets=every, registers=tuple((i,) for i in range(len(every))), vec=1
        )
        loaded = restored(lo, loaded, value)
        for slot in range(step.count):
            out[slot] += gathered(lo, [loaded], tuple(range(slot * count, (slot + 1) * count)))
    return out


def slot_of(lo: Lowering, step: WarpStep) -> Value:
    """The index of the slot that this thread's warp stores to."""
    with lo.at_entry():
        slot = lo.of_thread((), step.slot_bases)
        return lo.emit(arith.xor, slot, lo.constant(step.flip, int32)) if step.flip else slot


def finish(lo: Lowering, region_op: Op, values: Values) -> None:
    """Define the results: tiles as arrays, scalars as the first register."""
    for result, value in zip(region_op.results, values, strict=True):
        if isinstance(result.type, ScalarType):
            lo.env[result] = lo.emit(regs.extract, value, index=0, name=result.name)
        else:
            value.name = value.name or result.name
            lo.forms[result] = Array(value)
