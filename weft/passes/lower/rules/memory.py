"""Lowering of addresses and global memory accesses: vector loads and stores, and atomics, with each element accessed once.

%v = memory.load %p, %mask    -->    %v = memory.load_regs %base, %predicates {offsets=..., registers=..., vec=4}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.analysis.facts.congruence import MOST
from weft.errors import distributed as errors
from weft.errors import fail
from weft.ir.core import Op, OpDef, Value
from weft.ir.types import ScalarType, TileType, int1, int64
from weft.ops import arith, control, memory, regs, sync
from weft.ops.check import linear_of, pointer_of
from weft.ops.regs import Table
from weft.passes.lower.blocks import acting, both, owns_first, where
from weft.passes.lower.cuts import Cuts, bounds, whole_and_some
from weft.passes.lower.exchange import broadcast_from_owner, broadcast_scalar
from weft.passes.lower.forms import Array, Form, Splat, sum_strides
from weft.passes.lower.placement import leaders, owned
from weft.passes.lower.rules.arith import affine, elementwise, kept_scalar
from weft.passes.lower.state import Lowering, LowerRule
from weft.passes.lower.vectors import Tiles, Vectors, address_operands, vectorize

REDUCED_BYTES = 16
"""Of the widest vector that is added to memory (PTX ISA, red)."""


def operand_form(lo: Lowering, value: Value | None) -> Form | None:
    """The form of an optional operand; a scalar is a splat of one register."""
    if value is None:
        return None
    return lo.form(value) if isinstance(value.type, TileType) else Splat(lo.scalar(value), 1)


def predicate(lo: Lowering, mask: Form | None, registers: Table, owner: Value | None) -> Value | None:
    """One predicate per access, or one for all: the mask at `registers` and the owner's predicate."""
    if mask is None:
        return owner
    picked = lo.picked(mask, registers)
    if isinstance(picked, Splat):
        return picked.value if owner is None else lo.emit(arith.and_, picked.value, owner)
    value = lo.array(picked)
    if owner is None:
        return value
    return lo.emit(arith.and_, value, lo.emit(regs.splat, owner, count=len(registers)))


def _scalar_owner(lo: Lowering, op: Op) -> Value | None:
    """The predicate of the thread that accesses a scalar address for its block; None if the operands diverge, so that each
    thread accesses its own."""
    return lo.first_thread() if all(lo.scopes[value] == "block" for value in op.uses) else None


def owner_of(lo: Lowering, op: Op, ptr: Value) -> Value | None:
    """The predicate of the thread that performs a write or atomic at an address for the whole program, or for its block."""
    if isinstance(ptr.type, ScalarType):
        return both(lo, _scalar_owner(lo, op), acting(lo))
    return owns_first(lo, linear_of(ptr))


def load(lo: Lowering, op: Op) -> None:
    """Each thread loads the elements that it holds; registers with equal elements are loaded once.

    A block-uniform volatile scalar is loaded by one thread and broadcast: memory may change between two loads, and all threads
    must have the same value.
    """
    if op.attrs["order"]:
        _ordered_load(lo, op)
        return
    ptr, mask, other = op.operands
    assert ptr is not None
    scalar = isinstance(ptr.type, ScalarType)
    address, masked, default = (operand_form(lo, v) for v in (ptr, mask, other))
    assert address is not None
    same = (0,) if scalar else leaders(linear_of(ptr))
    wanted = tuple(sorted(set(same)))
    limit = _multimem_limit(op) if op.attrs["multimem"] else MOST
    cuts: Cuts = "" if scalar or op.attrs["volatile"] or op.attrs["multimem"] else "anywhere"
    itemsize = pointer_of(ptr).element_ty.itemsize
    vectors = vectorize(lo, Tiles(ptr, mask), address, masked, wanted, itemsize, limit, cuts=cuts)
    _check_pairs(op, vectors)
    slot = {register: i for i, register in enumerate(wanted)}
    reader = _scalar_owner(lo, op) if scalar and op.attrs["volatile"] else None

    base, strides, offsets = address_operands(lo, address, vectors.leaders)
    registers = tuple(tuple([slot[r] for r in group]) for group in vectors.groups)
    cut = _cut(lo, vectors, masked, None)
    on = predicate(lo, masked, vectors.leaders, reader) if cut is None else cut.whole
    value: Value = lo.emit(
        memory.load_regs, base, on, None if default is None else lo.array(lo.picked(default, wanted)), *strides,
        offsets=offsets, registers=registers, vec=vectors.vec, count=len(wanted), name=op.result.name, **op.attrs,
    )  # fmt: skip
    if cut is not None:
        value = _with_parts(
            lo, op, cut, (base, value, strides), {"offsets": offsets, "registers": registers, "vec": vectors.vec}
        )
    if reader is not None:
        lo.env[op.result] = broadcast_scalar(lo, value, op.result in lo.used)
        return
    if scalar:
        lo.env[op.result] = lo.emit(regs.extract, value, index=0, name=op.result.name)
        return
    lo.define(op, lo.picked(Array(value), tuple([slot[r] for r in same])))


def _with_parts(
    lo: Lowering, op: Op, cut: Cut, operands: tuple[Value, Value, tuple[Value, ...]], places: dict[str, Any]
) -> Value:
    """A loaded value, with the elements of vectors that the mask cuts: read in a branch of threads that have such vectors."""
    base, value, strides = operands
    name = op.result.name
    with lo.nested(()) as then:
        hints = _hints(op, memory.load_part)
        part: Value = lo.emit(
            memory.load_part, base, value, cut.cut, *cut.bounds(), *strides, name=name, **places, **hints
        )
        lo.emit(control.yield_, part)
    with lo.nested(()) as orelse:
        lo.emit(control.yield_, value)
    return lo.emit(control.if_, cut.any, regions=(then.done, orelse.done), name=name)


@dataclass(frozen=True, slots=True)
class Cut:
    """Predicates of vectors that a mask may cut: whether it has each `whole`, whether it may `cut` it, and whether `any`.
    `bounds` emits the bounds of those that it cuts."""

    whole: Value
    cut: Value
    any: Value
    bounds: Callable[[], tuple[Value | None, Value | None]]


def _cut(lo: Lowering, vectors: Vectors, mask: Form | None, owner: Value | None) -> Cut | None:
    """The predicates of vectors; None if the mask cuts none. `owner`: the predicate of threads that access any."""
    if mask is None or not vectors.cut:
        return None
    groups = vectors.groups
    whole, some = whole_and_some(lo, mask, groups)
    cut: Value = lo.emit(arith.xor, whole, some)
    if owner is not None:
        whole, cut = (lo.emit(arith.and_, x, lo.emit(regs.splat, owner, count=len(groups))) for x in (whole, cut))
    any_cut = lo.emit(regs.extract, cut, index=0)
    for i in range(1, len(groups)):
        any_cut = lo.emit(arith.or_, any_cut, lo.emit(regs.extract, cut, index=i))
    return Cut(whole, cut, any_cut, lambda: bounds(lo, mask, groups))


def _hints(op: Op, kind: OpDef) -> dict[str, Any]:
    """The attributes of an access that another one has, too."""
    return {name: value for name, value in op.attrs.items() if name in kind.defaults}


def _ordered_load(lo: Lowering, op: Op) -> None:
    """A load with a memory order: one thread loads each element, with one instruction per element, and broadcasts it to the
    other threads that hold it."""
    ptr, mask, other = op.operands
    assert ptr is not None
    scalar = isinstance(ptr.type, ScalarType)
    address, masked, default = (operand_form(lo, v) for v in (ptr, mask, other))
    assert address is not None
    registers = (0,) if scalar else owned(linear_of(ptr))
    # Unlike a store, a scalar load is executed in every block of a cluster.
    owner = _scalar_owner(lo, op) if scalar else lo.owns(linear_of(ptr))
    base, strides, offsets = address_operands(lo, address, registers)
    value: Value = lo.emit(
        memory.load_regs, base, predicate(lo, masked, registers, owner),
        None if default is None else lo.array(lo.picked(default, registers)), *strides,
        offsets=offsets, registers=tuple([(i,) for i in range(len(registers))]), vec=1, count=len(registers),
        name=op.result.name, **op.attrs,
    )  # fmt: skip
    if scalar:
        lo.env[op.result] = broadcast_scalar(lo, value, op.result in lo.used and owner is not None)
        return
    lo.define(op, Array(broadcast_from_owner(lo, value, linear_of(ptr), op.result in lo.used)))


def store(lo: Lowering, op: Op) -> None:
    """An element that several registers or threads hold is stored once.

    A block-uniform scalar is stored once too. If address, value or mask diverges, each thread stores its own.
    """
    ptr, value, mask = op.operands
    assert ptr is not None and value is not None
    address, data, masked = (operand_form(lo, v) for v in (ptr, value, mask))
    assert address is not None and data is not None
    registers = (0,) if isinstance(ptr.type, ScalarType) else owned(linear_of(ptr))
    owner = owner_of(lo, op, ptr)
    # PTX models a vector access as scalar accesses in unspecified order ("Memory Operations on Vector Data Types"), so accesses
    # with a memory order are scalar.
    limit = 1 if op.attrs["order"] else _multimem_limit(op) if op.attrs["multimem"] else MOST
    cuts: Cuts = "anywhere" if isinstance(ptr.type, TileType) and not op.attrs["multimem"] else ""
    itemsize = pointer_of(ptr).element_ty.itemsize
    vectors = vectorize(lo, Tiles(ptr, mask), address, masked, registers, itemsize, limit, cuts=cuts)
    _check_pairs(op, vectors)
    base, strides, offsets = address_operands(lo, address, vectors.leaders)
    cut = _cut(lo, vectors, masked, owner)
    on = predicate(lo, masked, vectors.leaders, owner) if cut is None else cut.whole
    stored = lo.array(data)
    lo.emit(
        memory.store_regs, base, stored, on, *strides,
        offsets=offsets, registers=vectors.groups, vec=vectors.vec, **op.attrs,
    )  # fmt: skip
    if cut is not None:
        with where(lo, cut.any):
            lo.emit(
                memory.store_part, base, stored, cut.cut, *cut.bounds(), *strides,
                offsets=offsets, registers=vectors.groups, vec=vectors.vec, **_hints(op, memory.store_part),
            )  # fmt: skip


def atomic(lo: Lowering, op: Op) -> None:
    """One thread executes the atomic for each element. If the old value is used, it is broadcast to the other threads that hold
    the element.

    If the operands of a scalar atomic diverge, each thread executes its own and keeps its old value, as in `store`.
    """
    ptr, value, mask = op.operands
    if not _reduced(lo, op):
        _exchange(lo, op, (ptr, value), mask)


def _reduced(lo: Lowering, op: Op) -> bool:
    """Emit vectors of relaxed additions whose old values nothing reads; False if there are none."""
    ptr, value, mask = op.operands
    assert ptr is not None and value is not None
    element = pointer_of(ptr).element_ty
    added = op.attrs["kind"] == "add" and op.attrs["order"] == "relaxed" and element.is_floating() and element.bits < 64
    multimem: bool = op.attrs["multimem"]
    scalar = isinstance(ptr.type, ScalarType)
    if not multimem and (op.result in lo.used or not lo.target.has_vector_atomics or not added or scalar):
        return False
    address, data, masked = (operand_form(lo, v) for v in (ptr, value, mask))
    assert address is not None and data is not None
    registers = (0,) if scalar else owned(linear_of(ptr))
    limit = _multimem_limit(op) if multimem else REDUCED_BYTES // element.itemsize
    vectors = vectorize(lo, Tiles(ptr, mask), address, masked, registers, element.itemsize, limit)
    _check_pairs(op, vectors)
    if vectors.vec == 1 and not multimem:
        return False
    base, strides, offsets = address_operands(lo, address, vectors.leaders)
    lo.emit(
        memory.reduce_regs, base, lo.array(data), predicate(lo, masked, vectors.leaders, owner_of(lo, op, ptr)), *strides,
        offsets=offsets, registers=vectors.groups, vec=vectors.vec, **op.attrs,
    )  # fmt: skip
    return True


def _multimem_limit(op: Op) -> int:
    """Most elements of a multimem access: floats of up to 32 bits have vectors of up to 16 bytes, others words."""
    ptr = op.operands[0]
    assert ptr is not None
    element = pointer_of(ptr).element_ty
    vectors = element.is_floating() and element.bits < 64
    return (REDUCED_BYTES if vectors else max(element.itemsize, 4)) // element.itemsize


def _check_pairs(op: Op, vectors: Vectors) -> None:
    """Raises CompilationError (multimem-pairs) for a multimem access of less than 32 bits."""
    ptr = op.operands[0]
    assert ptr is not None
    element = pointer_of(ptr).element_ty
    if op.attrs["multimem"] and element.bits * vectors.vec < 32:
        raise fail(errors.MULTIMEM_PAIRS, loc=op.loc, dtype=element.name)


def atomic_cas(lo: Lowering, op: Op) -> None:
    """Compare-and-swap, as `atomic`."""
    _exchange(lo, op, op.operands, None)


def _exchange(lo: Lowering, op: Op, operands: tuple[Value | None, ...], mask: Value | None) -> None:
    ptr = operands[0]
    assert ptr is not None
    scalar = isinstance(ptr.type, ScalarType)
    registers = (0,) if scalar else owned(linear_of(ptr))
    owner = owner_of(lo, op, ptr)
    forms = [operand_form(lo, v) for v in operands]
    arrays = [lo.array(lo.picked(form, registers)) for form in forms if form is not None]
    on = predicate(lo, operand_form(lo, mask), registers, owner)
    if on is not None and isinstance(on.type, ScalarType):
        on = lo.emit(regs.splat, on, count=len(registers))
    kind = memory.atomic_regs if op.kind is memory.atomic else memory.atomic_cas_regs
    attrs = {name: value for name, value in op.attrs.items() if name != "multimem"}
    old: Value = lo.emit(kind, *arrays, on, name=op.result.name, **attrs)
    if scalar:
        lo.env[op.result] = broadcast_scalar(lo, old, op.result in lo.used and owner is not None)
        return
    lo.define(op, Array(broadcast_from_owner(lo, old, linear_of(ptr), op.result in lo.used)))


def poll(lo: Lowering, op: Op) -> None:
    """One thread polls each element; the others wait for it at a barrier, behind which all may act on what was acquired.

    Without a timeout the result is known. If the operands of a scalar poll diverge, each thread polls for itself."""
    ptr, expected, timeout, *details = op.operands
    assert ptr is not None
    scalar = isinstance(ptr.type, ScalarType)
    registers = (0,) if scalar else owned(linear_of(ptr))
    # As a scalar load, a poll is executed in every block of a cluster.
    owner = _scalar_owner(lo, op) if scalar else lo.owns(linear_of(ptr))
    arrays, told = (
        [lo.array(lo.picked(form, registers)) for v in values if (form := operand_form(lo, v)) is not None]
        for values in ((ptr, expected), details)
    )
    on = None if owner is None else lo.emit(regs.splat, owner, count=len(registers))
    until = None if timeout is None else lo.scalar(timeout)
    met: Value = lo.emit(memory.poll_regs, *arrays, on, until, *told, name=op.result.name, **op.attrs)
    apart = scalar and owner is None
    if timeout is not None:
        used = op.result in lo.used and not apart
        if scalar:
            lo.env[op.result] = broadcast_scalar(lo, met, used)
        else:
            lo.define(op, Array(broadcast_from_owner(lo, met, linear_of(ptr), used)))
    elif scalar:
        lo.env[op.result] = lo.constant(1, int1)
    else:
        lo.define(op, Splat(lo.constant(1, int1), len(leaders(linear_of(ptr)))))
    if not apart:
        lo.emit(sync.barrier, reason="after a poll")


def addptr(lo: Lowering, op: Op) -> None:
    """Address arithmetic: the base pointer advances; constants and strides (as int64) stay until the access."""
    if kept_scalar(lo, op):
        return
    ptr, offset = (lo.form(v) for v in op.uses)
    base, step = lo.as_affine(ptr), lo.as_affine(offset)
    if base is None or step is None or (isinstance(ptr, Splat) and isinstance(offset, Splat)):
        elementwise(lo, op)
        return
    const = tuple([a + b for a, b in zip(base.const, step.const, strict=True)])
    strides = tuple([(lo.cast(stride, int64), table) for stride, table in step.strides])
    zero = lo.constants.get(step.base) == 0
    address = base.base if zero else lo.emit(memory.addptr, base.base, step.base)
    lo.define(op, affine(address, const, sum_strides(base.strides, strides)))


RULES: dict[OpDef, LowerRule] = {
    memory.addptr: addptr,
    memory.load: load,
    memory.store: store,
    memory.atomic: atomic,
    memory.atomic_cas: atomic_cas,
    memory.poll: poll,
}
