"""Loops and branches. Carried values are assigned in parallel at region edges, unless they share a variable."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from weft.cuda.emitter import Emitter, Partition, emits, spells
from weft.cuda.text.spelling import c_type
from weft.ir.core import Completion, Op, Region, Value, walk
from weft.ir.types import ScalarType
from weft.layout.base import WARPGROUP
from weft.ops import control, thread

UNITS: frozenset[Completion | None] = frozenset({"mbarrier", "bulk", "wgmma", "tcgen05"})
"""The completion mechanisms of the asynchronous units: TMA and tensor cores."""


@emits(control.for_)
def _for(e: Emitter, op: Op) -> None:
    lower, upper, step, *inits = op.uses
    (body,) = op.regions
    counter, *args = body.args
    e.assign(args, inits, mutable=True)
    e.declare_pending()
    i = e.counter(counter).name
    descending: bool | None = op.attrs["descending"]
    assert descending is not None, "count_loops gives loops a direction"
    sign = ">" if descending else "<"
    head = f"{c_type(counter.type.element)} {i} = {e.at(lower)}; {i} {sign} {e.at(upper)}; {_step(e, i, step)}"
    if _indexes_local_arrays(e, op):
        e.out.bare("#pragma unroll")
    else:
        _keep_rolled(e, op)
    with e.braces(f"for ({head})"):
        e.region(body)
        e.assign(args, body.terminator.uses)
    e.out.loc = op.loc
    e.assign(op.results, args)


def _keep_rolled(e: Emitter, loop: Op) -> None:
    """Emit `#pragma unroll 1` for a loop whose body issues work to the asynchronous units.

    NVRTC otherwise unrolls such a loop by 4, which only enlarges the code: its time is spent in waits for the units, not in
    branches. Loops of plain loads and arithmetic are left to NVRTC, since unrolling them overlaps several loads.
    """
    inside = (op for region in loop.regions for op in walk(region))
    if any(effect.completes in UNITS for op in inside for effect in op.effects):
        e.out.bare("#pragma unroll 1")


MOST_UNROLLED = 64
"""The largest trip count for which a loop is unrolled."""


def _indexes_local_arrays(e: Emitter, loop: Op) -> bool:
    """True for a loop with a small trip count that indexes a local array by a value that varies between iterations.

    Unrolling makes these indices constants. Without it, ptxas places the array in local memory, as registers cannot be
    indexed."""
    lower, upper, step = (e.number(value) for value in list(loop.uses)[:3])
    if lower is None or upper is None or step is None:
        return False
    if not 0 < control.trip_count(int(lower), int(upper), int(step)) <= MOST_UNROLLED:
        return False
    (body,) = loop.regions
    changing = {arg for arg in body.args if isinstance(arg.type, ScalarType)}
    for op in walk(body):
        if not changing.isdisjoint(op.uses):
            if op.kind in (thread.load_local, thread.store_local) and op.operand("index") in changing:
                return True
            changing.update(op.results, *(region.args for region in op.regions))
    return False


def _step(e: Emitter, counter: str, step: Value) -> str:
    number = e.number(step)
    if number in (1, -1):
        return f"{'++' if number == 1 else '--'}{counter}"
    return f"{counter} += {e.at(step)}"


@spells(control.trips)
def _trips(e: Emitter, op: Op, lower: str, upper: str, step: str) -> str:
    return e.call(f"trips({c_type(op.uses[0].type.element)})", lower, upper, step)


@emits(control.while_)
def _while(e: Emitter, op: Op) -> None:
    before, after = op.regions
    e.assign(before.args, op.uses, mutable=True)
    for result in op.results:
        e.variable(result)
    e.declare_pending()
    _keep_rolled(e, op)
    with e.braces("for (;;)"):
        e.region(before)
        condition, *passed = before.terminator.uses
        _break_loop(e, op, f"!{_negatable(e.at(condition))}", passed)
        e.assign(after.args, passed, mutable=True)
        e.region(after)
        e.assign(before.args, list(after.terminator.uses))
    e.out.loc = op.loc


def _break_loop(e: Emitter, op: Op, condition: str, passed: list[Value]) -> None:
    """A conditional break of the loop, with the passed values as its results."""
    if all(e.variable(result) is e.refs[value] for result, value in zip(op.results, passed, strict=True)):
        e.out.line(f"if ({condition}) break;")
        return
    with e.braces(f"if ({condition})"):
        e.assign(op.results, passed)
        e.out.line("break;")


def _negatable(text: str) -> str:
    return text if text.replace("_", "").isalnum() else f"({text})"


@emits(control.if_)
def _if(e: Emitter, op: Op) -> None:
    condition = op.operands[0]
    assert condition is not None
    then, orelse = op.regions
    for result in op.results:
        e.variable(result)
    with e.braces(f"if ({e.at(condition)})"):
        e.region(then)
        e.assign(op.results, then.terminator.uses)
    with e.out.unless_empty():
        e.region(orelse)
        e.assign(op.results, list(orelse.terminator.uses))
    e.out.loc = op.loc


@dataclass(frozen=True, slots=True)
class _Role:
    """A partition and its region. `registers` per thread; 0: the kernel's initial number."""

    partition: Partition
    region: Region
    registers: int

    @property
    def end(self) -> int:
        """The first warp after the partition."""
        return self.partition.first_warp + self.partition.num_warps


@emits(control.partitions)
def _partitions(e: Emitter, op: Op) -> None:
    """A branch for each partition. If warpgroups have different numbers of registers, these are nested in a branch for each
    warpgroup."""
    attrs = zip(*(op.attrs[name] for name in ("first_warps", "num_warps", "num_regs")), op.regions, strict=True)
    roles = [
        _Role(Partition(first, warps, barrier=number), region, registers)
        for number, (first, warps, registers, region) in enumerate(attrs, start=1)
    ]
    roles.sort(key=lambda role: role.partition.first_warp)
    groups = [roles]
    if any(op.attrs["num_regs"]):
        groups = [list(group) for _, group in groupby(roles, lambda role: role.partition.first_warp // WARPGROUP)]
    _branches(e, [(group[-1].end, partial(_group, e, group)) for group in groups])
    e.out.loc = op.loc


def _group(e: Emitter, roles: list[_Role]) -> None:
    """The code of partitions in the same warpgroups. `setmaxnreg` comes first: all warps of a warpgroup must execute the same
    one (PTX ISA, setmaxnreg)."""
    registers, start = roles[0].registers, e.func.attrs.registers
    if registers and registers != start:
        e.out.line(f"{e.pieces.use('take_registers' if registers > start else 'give_registers')}<{registers}>();")
    _branches(e, [(role.end, partial(_role, e, role)) for role in roles])


def _role(e: Emitter, role: _Role) -> None:
    outside, e.partition = e.partition, role.partition
    e.region(role.region)
    e.partition = outside


def _branches(e: Emitter, arms: list[tuple[int, Callable[[], None]]]) -> None:
    """An if-else chain by warp index: each arm applies to the warps below its bound. A single arm needs no branch."""
    *tested, (_, last) = arms
    loc = e.out.loc
    for number, (end, write) in enumerate(tested):
        condition, e.out.loc = f"{e.warp} < {end}", loc
        with e.out.otherwise(condition) if number else e.braces(f"if ({condition})"):
            write()
    e.out.loc = loc
    with e.out.otherwise() if tested else nullcontext():
        last()


@emits(control.return_, control.yield_, control.condition)
def _terminator(e: Emitter, op: Op) -> None:
    """Emits nothing: the operation that owns the region assigns the yielded values."""
