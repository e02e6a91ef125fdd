"""Lowering of control flow: what loops carry.

A tile that a loop carries becomes a register array, unless it is base and constants before the loop and the body only moves the
base: then only the base is carried. The body is lowered on that assumption, and again without it where it did not hold; the
divisor of a carried base is found the same way. What is known of a scalar is known beforehand (`weft.analysis.facts`). What an
inner loop settled on is where it starts in the next attempt at an outer one: assumptions only become weaker. Of a handle its
bytes are carried, or its memory where allocations differ (of one to tensor memory its address); what is constant about it has
to agree, so loops and branches that hand handles on are lowered until that is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.ir.core import Op, Region, Value
from weft.ir.define import OpDef
from weft.ir.types import DType, RegsType, ScalarType, SharedArrayType, SharedType, TensorType, TileType, Type, int32
from weft.ops import control
from weft.ops import reduce as reduce_ops
from weft.passes.lower.forms import Affine, Array, Form
from weft.passes.lower.handles import Handle, bytes_like, meet, memory_like, memory_type
from weft.passes.lower.state import Lowering, LowerRule
from weft.passes.lower.tensor_memory import TensorHandle, address_like, meet_tensors

HANDLES = (SharedType, TensorType)


@dataclass(frozen=True, slots=True)
class Carried:
    """One carried value: its type in the lowered loop, the constants around it, and what divides the base between them.

    Those are of a tile that is carried as its base, or of a handle (None before the first is known)."""

    type: Type
    around: Affine | Handle | TensorHandle | None
    divisor: int


def _values(op: Op, first: int) -> tuple[Value, ...]:
    return tuple(value for value in op.operands[first:] if value is not None)


def _initial(lo: Lowering, value: Value, arg: Value) -> Carried:
    """What the loop may carry, judged by the initial value and by earlier attempts at an enclosing loop."""
    found, before = _hoped(lo, value), lo.settled.get(arg)
    if before is None:
        return found
    return before if before.around is None and isinstance(value.type, TileType) else _weaker(found, before.divisor)


def _weaker(carried: Carried, divisor: int) -> Carried:
    return replace(carried, divisor=min(carried.divisor, divisor))


def _hoped(lo: Lowering, value: Value) -> Carried:
    if isinstance(value.type, SharedType):
        handle = lo.handles[value]
        return Carried(ScalarType(int32), handle, lo.divisor(handle.bytes))
    if isinstance(value.type, TensorType):
        tensor = lo.tensors[value]
        return Carried(ScalarType(int32), tensor, lo.divisor(tensor.address))
    if not isinstance(value.type, TileType):
        return Carried(lo.scalar(value).type, None, 1)
    around = _around(lo, lo.form(value), value.type)
    if around is None:
        return Carried(RegsType(value.type.element, value.type.registers), None, 1)
    return Carried(around.base.type, around, lo.divisor(around.base))


def _around(lo: Lowering, form: Form, type: TileType) -> Affine | None:
    """The form as base and constants, where a loop may carry it so."""
    if isinstance(type.element, DType) and (type.element.is_floating() or type.element.is_bool()):
        return None
    affine = lo.as_affine(form)
    return None if affine is None or affine.exact is not None else affine


def _enter(lo: Lowering, old: Value, carried: Carried, new: Value) -> None:
    """Inside the loop (or after it) `new` stands for the carried value."""
    if isinstance(carried.around, Handle):
        whole = isinstance(new.type, SharedArrayType)
        place = {"room": new, "bytes": lo.constant(0, int32)} if whole else {"bytes": new}
        lo.handles[old] = replace(carried.around, **place)
        lo.divides(new, carried.divisor)
        return
    if isinstance(carried.around, TensorHandle):
        lo.tensors[old] = replace(carried.around, address=new)
        lo.divides(new, carried.divisor)
        return
    if not isinstance(old.type, TileType):
        lo.env[old] = new
        lo.numbers[new] = lo.facts()[old].hull
        return
    if carried.around is None:
        lo.forms[old] = Array(new)
        return
    assert isinstance(carried.around, Affine)
    lo.divides(new, carried.divisor)
    lo.forms[old] = replace(carried.around, base=new)


def _leave(lo: Lowering, value: Value, carried: Carried) -> Value:
    """The value that is handed on for `value`, as the loop carries it."""
    if isinstance(value.type, HANDLES):
        around = _met(lo, value, carried).around
        if isinstance(around, TensorHandle):
            return address_like(lo, value, around)
        assert isinstance(around, Handle)
        return (memory_like if isinstance(carried.type, SharedArrayType) else bytes_like)(lo, value, around)
    if not isinstance(value.type, TileType):
        return lo.scalar(value)
    form = lo.form(value)
    if carried.around is None:
        return lo.array(form)
    affine = lo.as_affine(form)
    return affine.base if affine is not None else lo.array(form)


def _met(lo: Lowering, value: Value, carried: Carried) -> Carried:
    """How a handle is carried together with those that came before it."""
    around = carried.around
    if isinstance(value.type, TensorType):
        tensor = lo.tensors[value]
        met = meet_tensors(around, tensor, value.type, lo.loc) if isinstance(around, TensorHandle) else tensor
        return replace(carried, around=met)
    assert isinstance(value.type, SharedType)
    handle = lo.handles[value]
    if not isinstance(around, Handle):
        return replace(carried, around=handle)
    common = meet(lo, around, handle, value.type, lo.loc)
    type = carried.type if handle.room is common.room else memory_type(value.type)
    return replace(carried, type=type, around=common)


def _revised(lo: Lowering, value: Value, carried: Carried, given: Value) -> Carried:
    """What the loop can carry, now that the body's end is known."""
    if isinstance(value.type, HANDLES):
        return _weaker(_met(lo, value, carried), lo.divisor(given))
    if isinstance(value.type, TileType) and carried.around is not None:
        assert isinstance(carried.around, Affine)
        after = _around(lo, lo.form(value), value.type)
        if after is None or (after.const, after.strides) != (carried.around.const, carried.around.strides):
            return Carried(RegsType(value.type.element, value.type.registers), None, 1)
    return carried if carried.around is None else _weaker(carried, lo.divisor(given))


def _yielded(lo: Lowering, region: Region, carried: list[Carried], kind: OpDef, first: int) -> tuple[Value, ...]:
    """Emit the region's terminator with values as the loop carries them; returns the old ones."""
    terminator = region.terminator
    lo.loc = terminator.loc
    old = tuple(terminator.uses)
    head = [lo.scalar(value) for value in old[:first]]
    lo.emit(kind, *head, *(_leave(lo, v, c) for v, c in zip(old[first:], carried, strict=True)))
    return old[first:]


def for_(lo: Lowering, op: Op) -> None:
    """Lower the body until what it carries holds."""
    lower, upper, step = (lo.scalar(v) for v in op.operands[:3])
    inits = _values(op, 3)
    (old,) = op.regions
    carried = [_initial(lo, value, arg) for value, arg in zip(inits, old.args[1:], strict=True)]
    while True:
        counter = Value(lower.type, old.args[0].name)
        args = (counter, *(Value(c.type, v.name) for c, v in zip(carried, old.args[1:], strict=True)))
        with lo.nested(args) as body:
            lo.env[old.args[0]] = counter
            lo.numbers[counter] = lo.facts()[old.args[0]].hull
            for before, c, arg in zip(old.args[1:], carried, args[1:], strict=True):
                _enter(lo, before, c, arg)
            for inner in old.ops[:-1]:
                lo.copy_op(inner)
            yielded = _yielded(lo, old, carried, control.yield_, 0)
            given = tuple(body.ops[-1].uses)
        revised = [_revised(lo, v, c, g) for v, c, g in zip(yielded, carried, given, strict=True)]
        if revised == carried:
            break
        carried = revised
    lo.settled.update(zip(old.args[1:], carried, strict=True))
    lo.loc = op.loc
    starts = [_leave(lo, value, c) for value, c in zip(inits, carried, strict=True)]
    results = lo.emit_all(
        control.for_, lower, upper, step, *starts, regions=(body.done,), descending=op.attrs["descending"]
    )
    for result, c, new in zip(op.results, carried, results, strict=True):
        new.name = result.name
        _enter(lo, result, c, new)


def while_(lo: Lowering, op: Op) -> None:
    """Tiles are carried as arrays."""
    inits = _values(op, 0)
    before, after = op.regions
    into = _joined(lo, [_plain(value) for value in inits], inits)
    on = [_plain(value) for value in after.args]
    while True:
        condition, passed = _part(lo, before, into, on, control.condition, 1)
        found = _joined(lo, on, passed)
        if found != on:
            on = found
            continue
        body, yielded = _part(lo, after, on, into, control.yield_, 0)
        found = _joined(lo, into, yielded)
        if found == into:
            break
        into = found
    regions = (condition, body)
    lo.loc = op.loc
    starts = [_leave(lo, value, c) for value, c in zip(inits, into, strict=True)]
    results = lo.emit_all(control.while_, *starts, regions=regions)
    for result, c, new in zip(op.results, on, results, strict=True):
        new.name = result.name
        _enter(lo, result, c, new)


def _part(
    lo: Lowering, region: Region, entering: list[Carried], leaving: list[Carried], kind: OpDef, first: int
) -> tuple[Region, tuple[Value, ...]]:
    """A region of a `while` or `if`, and the old values that it hands on."""
    args = tuple(Value(c.type, v.name) for c, v in zip(entering, region.args, strict=True))
    with lo.nested(args) as body:
        for old, c, arg in zip(region.args, entering, args, strict=True):
            _enter(lo, old, c, arg)
        for inner in region.ops[:-1]:
            lo.copy_op(inner)
        handed = _yielded(lo, region, leaving, kind, first)
    return body.done, handed


def _joined(lo: Lowering, carried: list[Carried], values: tuple[Value, ...]) -> list[Carried]:
    """What is carried, with the handles among it brought together with those of `values`."""
    return [
        _met(lo, value, c) if isinstance(value.type, HANDLES) else c for c, value in zip(carried, values, strict=True)
    ]


def _plain(value: Value) -> Carried:
    if isinstance(value.type, TileType):
        return Carried(RegsType(value.type.element, value.type.registers), None, 1)
    return Carried(ScalarType(int32) if isinstance(value.type, HANDLES) else value.type, None, 1)


def if_(lo: Lowering, op: Op) -> None:
    """Both branches hand on scalars and arrays."""
    results = [_plain(result) for result in op.results]
    while True:
        found = results
        regions: list[Region] = []
        for region in op.regions:
            branch, handed = _part(lo, region, [], results, control.yield_, 0)
            found = _joined(lo, found, handed)
            regions.append(branch)
        if found == results:
            break
        results = found
    lo.loc = op.loc
    made = lo.emit_all(control.if_, lo.scalar(op.operands[0]), regions=tuple(regions))
    for result, c, new in zip(op.results, results, made, strict=True):
        new.name = result.name
        _enter(lo, result, c, new)


def map_elements(lo: Lowering, op: Op) -> None:
    """The function stays a region over scalars, run for each register."""
    if not isinstance(op.results[0].type, TileType):
        lo.env.update(zip(op.results, lo.keep(op, tuple([lo.scalar(v) for v in op.uses])), strict=True))
        return
    arrays = [lo.array(lo.form(value)) for value in op.uses]
    body = lo.copy_region(op.regions[0])
    lo.loc = op.loc
    results = lo.emit_all(reduce_ops.map_elements, *arrays, regions=(body,), **op.attrs)
    lo.define(op, *(Array(value) for value in results))


def partitions(lo: Lowering, op: Op) -> None:
    """Each region is lowered as a kernel of its own."""
    regions: list[Region] = []
    for region, warps in zip(op.regions, op.attrs["num_warps"], strict=True):
        with lo.partition(warps) as opened:
            for inner in region.ops:
                lo.copy_op(inner)
        regions.append(opened.done)
    lo.loc = op.loc
    lo.emit(control.partitions, regions=tuple(regions), **op.attrs)


RULES: dict[OpDef, LowerRule] = {
    control.for_: for_,
    control.while_: while_,
    control.if_: if_,
    control.partitions: partitions,
    reduce_ops.map_elements: map_elements,
}
