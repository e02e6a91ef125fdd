"""Lowering of control flow: the types of the values that loops carry and branches yield.

    %p = control.for (%at) {^(%i, %a): ... control.yield (memory.addptr %a, (tile.splat %s))}
-->
    %b = control.for (%base) {^(%i, %c): ... control.yield (memory.addptr %c, %s)}       one pointer, not one per register

A tile is carried as a register array. There is one exception: if a `for` only adds uniform values to it
(`weft.passes.lower.roots`), and its initial value is affine (a base plus constants), only the base is carried. A handle is
carried as its byte offset, or as its memory if its sources belong to different allocations (`weft.passes.lower.views`). These
decisions and the value facts (`weft.analysis.facts`) are made on tile IR, so each region is lowered only once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.analysis.flow import LOOPS, Pair, joints
from weft.ir.core import Op, OpDef, Region, Value
from weft.ir.types import RegsType, ScalarType, SharedArrayType, SharedType, TensorType, TileType, Type, int32
from weft.ops import control
from weft.passes.lower.forms import Affine, Array, Origin
from weft.passes.lower.handles import begin_from, memory_from, memory_type
from weft.passes.lower.roots import is_index
from weft.passes.lower.rules.tensor_memory import leave
from weft.passes.lower.state import Lowering, LowerRule


@dataclass(frozen=True, slots=True)
class Carried:
    """How a control flow edge carries a value: its lowered type, and the initial affine form of a tile that is carried as its
    base."""

    type: Type
    around: Affine | None = None


def _carried(lo: Lowering, target: Value, enters: Value | None) -> Carried:
    """How the phi `target` is carried. `enters` is its initial value, if it is carried by a `for`."""
    t = target.type
    if isinstance(t, SharedType):
        whole = lo.views.known[target].room is target
        return Carried(memory_type(t) if whole else ScalarType(int32))
    if isinstance(t, TensorType):
        return Carried(ScalarType(int32))
    if not isinstance(t, TileType):
        return Carried(t)
    if enters is not None and is_index(t) and lo.roots.of(target) is not target:
        around = lo.as_affine(lo.form(enters))
        if around is not None and around.exact is None:
            return Carried(around.base.type, around)
    return Carried(RegsType(t.element, t.registers))


def _enter(lo: Lowering, old: Value, carried: Carried, new: Value) -> None:
    """Record that past the edge the lowered value `new` represents `old`."""
    if isinstance(old.type, SharedType):
        whole = isinstance(new.type, SharedArrayType)
        room = new if whole else lo.handles[lo.views.known[old].room].room
        lo.handles[old] = Origin(room, lo.constant(0, int32) if whole else new)
    elif isinstance(old.type, TensorType):
        lo.handles[old] = Origin(None, new)
    elif not isinstance(old.type, TileType):
        lo.env[old] = new
        lo.numbers[new] = lo.facts()[old].hull
    elif carried.around is None:
        lo.forms[old] = Array(new)
    else:
        lo.numbers[new] = lo.base_of(old, carried.around)
        lo.forms[old] = replace(carried.around, base=new)


def _leave(lo: Lowering, value: Value, target: Value, carried: Carried) -> Value:
    """The lowered value that an edge passes for `value` to the phi `target`."""
    if isinstance(value.type, SharedType | TensorType):
        form = memory_from if isinstance(carried.type, SharedArrayType) else begin_from
        return form(lo, value, lo.start(target))
    if not isinstance(value.type, TileType):
        return lo.scalar(value)
    around, form = carried.around, lo.form(value)
    if around is None:
        return lo.array(form)
    moved = lo.as_affine(form)
    assert moved is not None and (moved.const, moved.strides) == (around.const, around.strides), "it only moved"
    return moved.base


def structured(lo: Lowering, op: Op) -> None:
    """Lower a loop or branch with its regions."""
    carried: dict[Value, Carried] = {}
    leaving: dict[int | None, list[Pair]] = {None: [], **{number: [] for number in range(len(op.regions))}}
    for joint in joints(op):
        hub, *_ = joint.targets
        for port in joint.sources:
            leaving[port.region] += zip(port.values, hub.values, strict=True)
        # The phis of a `while` and of a branch carry tiles as arrays.
        enters = [port.values for port in joint.sources if port.region is None and op.kind is control.for_]
        for row, number in zip(joint.rows, range(len(hub.values)), strict=True):
            how = _carried(lo, hub.values[number], enters[0][number] if enters else None)
            carried.update(dict.fromkeys(row[len(joint.sources) :], how))

    def handed(number: int | None, operands: tuple[Value | None, ...]) -> list[Value]:
        """The lowered operands: those that no edge passes (bounds, conditions), then those that the edges pass."""
        own = operands[: len(operands) - len(leaving[number])]
        moved = (_leave(lo, value, target, carried[target]) for value, target in leaving[number])
        return [*map(lo.scalar, own), *moved]

    made: list[Region] = []
    for number, region in enumerate(op.regions):
        ways = [carried.get(arg) or Carried(arg.type) for arg in region.args]
        args = tuple([Value(way.type, arg.name) for way, arg in zip(ways, region.args, strict=True)])
        with lo.nested(args) as body:
            for old, way, arg in zip(region.args, ways, args, strict=True):
                _enter(lo, old, way, arg)
            for inner in region.ops[:-1]:
                lo.copy_op(inner)
            end = region.terminator
            lo.loc = end.loc
            lo.emit(end.kind, *handed(number, end.operands))
        made.append(body.done)
    lo.loc = op.loc
    results = lo.create(op.kind, tuple(handed(None, op.operands)), op.attrs, tuple(made))
    for old, new in zip(op.results, results, strict=True):
        new.name = old.name
        _enter(lo, old, carried[old], new)


def partitions(lo: Lowering, op: Op) -> None:
    """Each partition is lowered like a kernel: it has its own entry, number of warps and thread indices."""
    regions: list[Region] = []
    for region, warps in zip(op.regions, op.attrs["num_warps"], strict=True):
        with lo.partition(warps) as opened:
            for inner in region.ops:
                lo.copy_op(inner)
        regions.append(opened.done)
    lo.loc = op.loc
    lo.emit(control.partitions, regions=tuple(regions), **op.attrs)


RULES: dict[OpDef, LowerRule] = {
    **dict.fromkeys((*LOOPS, control.if_), structured),
    control.partitions: partitions,
    control.return_: leave,
}
