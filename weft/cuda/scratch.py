"""The compiler's own shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cuda import access
from weft.cuda.access import Access
from weft.cuda.globals import read_registers, write_registers
from weft.cuda.prelude import Piece
from weft.cuda.refs import Index, Inline, Ref
from weft.cuda.rules import emits, refers
from weft.cuda.tables import parenthesised
from weft.ir.core import Op, Value
from weft.ir.types import ScratchType
from weft.ops import scratch

if TYPE_CHECKING:
    from weft.cuda.emitter import Emitter

_ADD = (
    "DEV void add_shared(u32 p, int value) {\n"
    '  asm volatile("red.shared.add.s32 [%0], %1;" :: "r"(p), "r"(value) : "memory"); }'
)
_ADD_IF = (
    "DEV void add_shared_if(u32 p, int value, bool on) {\n"
    '  asm volatile("{\\n.reg .pred on;\\nsetp.ne.b32 on, %2, 0;\\n@on red.shared.add.s32 [%0], %1;\\n}" '
    ':: "r"(p), "r"(value), "r"((int)on) : "memory"); }'
)


def _type(value: Value) -> ScratchType:
    assert isinstance(value.type, ScratchType)
    return value.type


@refers(scratch.alloc)
def _alloc(e: Emitter, op: Op) -> Ref:
    return Inline(str(op.attrs["offset"]))


def _address(e: Emitter, memory: Value, element: str) -> str:
    """The address of an element in bytes: base of shared memory, the allocation's offset, the element's."""
    itemsize, offset = _type(memory).element.itemsize, e.at(memory)
    scaled = element if itemsize == 1 else f"{itemsize} * {element}"
    return e.shared_address(scaled if offset == "0" else f"{offset} + {scaled}")


def _place(e: Emitter, op: Op, index: Index) -> str:
    """The access's first element: `base ^ 16 * r`."""
    base = op.operands[1]
    assert base is not None
    offset = e.entry(op.attrs["offsets"], index)
    if e.number(base) == 0:
        return parenthesised(offset)
    return e.at(base, 0) if offset == "0" else f"({e.at(base, 0)} ^ {parenthesised(offset)})"


@emits(scratch.store)
def _store(e: Emitter, op: Op) -> None:
    memory, _, value, mask = op.operands
    assert memory is not None and value is not None
    a = Access("shared", _type(memory).element, op.attrs["vec"], "" if mask is None else "if")
    on = None if mask is None else e.at(mask, 0)
    write_registers(e, a, value, op.attrs["registers"], lambda index: (_address(e, memory, _place(e, op, index)), on))


@emits(scratch.load)
def _load(e: Emitter, op: Op) -> None:
    memory = op.operands[0]
    assert memory is not None
    a = Access("shared", _type(memory).element, op.attrs["vec"])
    into, registers = e.variable(op.result), op.attrs["registers"]
    read_registers(e, a, into, registers, lambda index: (_address(e, memory, _place(e, op, index)), None))


@emits(scratch.load_at)
def _load_at(e: Emitter, op: Op) -> None:
    memory, element = op.uses
    a = Access("shared", _type(memory).element, 1)
    into = e.variable(op.result)

    def read(index: Index) -> str:
        return access.load(e, a, f"{into.name} + {index}", _address(e, memory, e.at(element, index)), None)

    e.unrolled(into.count or 1, [(op.loc, read)])


@emits(scratch.add_at)
def _add_at(e: Emitter, op: Op) -> None:
    memory, element, value, mask = op.operands
    assert memory is not None and element is not None and value is not None
    name = "add_shared" if mask is None else "add_shared_if"
    e.pieces.define(name, Piece(_ADD if mask is None else _ADD_IF))

    def add(index: Index) -> str:
        on = "" if mask is None else f", {e.at(mask, index)}"
        return f"{name}({_address(e, memory, e.at(element, index))}, {e.at(value, index)}{on});"

    e.unrolled(getattr(value.type, "count", 1), [(op.loc, add)])
