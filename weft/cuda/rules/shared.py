"""Shared memory: the author's allocations and the compiler's scratch. A memory handle is represented by its address."""

from __future__ import annotations

from dataclasses import replace

from weft.cuda.emitter import Emitter, emits, refers
from weft.cuda.rules.memory import plus, read_registers, write_registers
from weft.cuda.text import accesses as access
from weft.cuda.text.accesses import AccessFunction, Masked, Matrix
from weft.cuda.text.atomics import Atomic, combine
from weft.cuda.text.prelude import Piece
from weft.cuda.text.refs import Index, Inline, Ref
from weft.cuda.text.spelling import count_of
from weft.cuda.text.tables import IndexTable, parenthesised
from weft.ir.core import Op, Value
from weft.ir.types import DType, SharedArrayType
from weft.layout.shared.layouts import Pads
from weft.ops import shared


def element_of(memory: Value) -> DType:
    """The element type of an array in shared memory."""
    assert isinstance(memory.type, SharedArrayType)
    return memory.type.element


@refers(shared.array, shared.scratch)
def _alloc(e: Emitter, op: Op) -> Ref:
    """The name of the author's allocation, which the kernel's head defines."""
    offset = op.attrs["offset"]
    address = e.shared_address(str(offset) if offset else "")
    if not op.result.name:
        return Inline(address)
    name = e.names.fresh(op.result.name)
    e.buffers.append((name, address))
    return Inline(name)


@refers(shared.view)
def _view(e: Emitter, op: Op) -> Ref:
    """An address sum, which gets a variable if it is computed at run time."""
    memory, offset = op.uses
    e.allocation_of[op.result] = e.allocation_of.get(memory, memory)
    number = e.number(offset)
    text = e.at(memory) if number == 0 else f"{e.at(memory)} + {e.at(offset)}"
    if number is not None:
        return Inline(text)
    e.out.loc = op.loc
    e.define(op.result, text)
    return e.refs[op.result]


def element_address(
    e: Emitter, memory: Value, base: Value, offsets: IndexTable, added: IndexTable, pads: Pads, index: Index,
    start: str = "",
) -> str:  # fmt: skip
    """The address of an access: `smem + 2 * (base ^ 8 * r) + 1024 * r`. `start`: the text of the memory's address, if it is
    that of another block's."""
    itemsize = element_of(memory).itemsize
    address = place(e, memory, padded(e, pads, _element(e, base, offsets, index)), start)
    return plus(address, e.entry(tuple([itemsize * step for step in added]), index)) if added else address


def _element(e: Emitter, base: Value, offsets: IndexTable, index: Index) -> str:
    offset = e.entry(offsets, index)
    if e.number(base) == 0:
        return parenthesised(offset)
    return e.at(base, 0) if offset == "0" else f"({e.at(base, 0)} ^ {parenthesised(offset)})"


def padded(e: Emitter, pads: Pads, element: str) -> str:
    """The padded offset of an element, by a function generated for these paddings."""
    if not pads:
        return element
    name = "padded_" + "_".join(f"{interval}_{'less_' * (padding < 0)}{abs(padding)}" for interval, padding in pads)
    terms = "".join(f" {'-' if padding < 0 else '+'} x / {interval} * {abs(padding)}" for interval, padding in pads)
    e.pieces.define(name, Piece(f"DEV u32 {name}(u32 x) {{ return x{terms}; }}"))
    return f"{name}({element})"


def place(e: Emitter, memory: Value, element: str, start: str = "") -> str:
    """The address of an element: the base address, or `start`, plus its offset in bytes."""
    itemsize = element_of(memory).itemsize
    return plus(start or e.at(memory), element if itemsize == 1 or element == "0" else f"{itemsize} * {element}")


def _accessed(e: Emitter, op: Op, index: Index) -> str:
    memory, base = op.operands[:2]
    assert memory is not None and base is not None
    return element_address(e, memory, base, op.attrs["offsets"], op.attrs["added"], op.attrs["pads"], index)


def _moves(op: Op, masked: Masked = "") -> AccessFunction:
    """The access shape of an operation on constant offsets."""
    memory, registers = op.operands[0], op.attrs["registers"]
    assert memory is not None
    matrix: Matrix = "" if "matrices" not in op.attrs else "transposed" if op.attrs["transposed"] else "plain"
    return AccessFunction("shared", element_of(memory), len(registers[0]), masked, matrix=matrix)


@emits(shared.store_regs, shared.store_matrix)
def _store(e: Emitter, op: Op) -> None:
    _, _, value, mask = op.operands
    assert value is not None
    a = _moves(op, "" if mask is None else "if")
    on = None if mask is None else e.at(mask, 0)
    write_registers(e, a, value, op.attrs["registers"], lambda index: (_accessed(e, op, index), on))


@emits(shared.async_store_regs)
def _async_store(e: Emitter, op: Op) -> None:
    _, _, value, bar, mask = op.operands
    assert value is not None and bar is not None
    a = replace(_moves(op, "" if mask is None else "if"), signals=True)
    on, barrier = None if mask is None else e.at(mask, 0), e.at(bar)
    write_registers(e, a, value, op.attrs["registers"], lambda index: (f"{_accessed(e, op, index)}, {barrier}", on))


@emits(shared.load_regs, shared.load_matrix)
def _load(e: Emitter, op: Op) -> None:
    if count_of(op.result.type) is None:
        e.define(op.result, access.read(e, _moves(op), _accessed(e, op, 0), None))
        return
    read_registers(
        e, _moves(op), e.variable(op.result), op.attrs["registers"], lambda index: (_accessed(e, op, index), None)
    )


@emits(shared.load_at)
def _load_at(e: Emitter, op: Op) -> None:
    memory, element = op.uses
    a = AccessFunction("shared", element_of(memory), 1)
    if count_of(op.result.type) is None:
        e.define(op.result, access.read(e, a, _at(e, op, memory, element, 0), None))
        return
    into = e.variable(op.result)

    def read(index: Index) -> str:
        return access.load(e, a, f"{into.name} + {index}", _at(e, op, memory, element, index), None)

    e.unrolled(into.count or 1, [(op.loc, read)])


@emits(shared.store_at)
def _store_at(e: Emitter, op: Op) -> None:
    memory, element, value, mask = op.operands
    assert memory is not None and element is not None and value is not None
    a = AccessFunction("shared", element_of(memory), 1, "" if mask is None else "if")
    on = None if mask is None else e.at(mask, 0)
    every = tuple([(r,) for r in range(getattr(value.type, "count", 1))])
    write_registers(e, a, value, every, lambda index: (_at(e, op, memory, element, index), on))


def _at(e: Emitter, op: Op, memory: Value, element: Value, index: Index) -> str:
    """The address of a register's element."""
    return place(e, memory, padded(e, op.attrs["pads"], e.at(element, index)))


@emits(shared.atomic_at)
def _atomic_at(e: Emitter, op: Op) -> None:
    memory, element, value, mask = op.operands
    assert memory is not None and element is not None and value is not None
    or_zero = mask is not None and e.is_used(op.result)
    # In a cluster other blocks may combine into the same memory (`cluster.atomic_at`).
    scope = "cta" if e.func.attrs.num_ctas == 1 else "cluster"
    atomic = Atomic(op.attrs["kind"], element_of(memory), "relaxed", scope, mask is not None, "shared", or_zero)
    name = combine(e, op, atomic)

    def call(index: Index) -> str:
        on = "" if mask is None else f", {e.at(mask, index)}"
        return f"{name}({_at(e, op, memory, element, index)}, {e.at(value, index)}{on})"

    e.call_each(op, call)
