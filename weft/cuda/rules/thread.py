"""Thread-level operations: local arrays, and vector accesses and atomics on shared memory."""

from __future__ import annotations

from functools import partial

from weft.cuda.emitter import Emitter, emits, spells
from weft.cuda.rules.debug import program_place
from weft.cuda.rules.memory import read_registers, write_registers
from weft.cuda.text import accesses as access
from weft.cuda.text import atomics
from weft.cuda.text.accesses import AccessFunction, Masked
from weft.cuda.text.refs import Index, Variable
from weft.cuda.text.spelling import c_type_of, count_of, string
from weft.cuda.text.tables import IndexTable, parenthesised
from weft.ir.core import Op, Value
from weft.ir.types import LocalType, SharedArrayType
from weft.ops import thread

# Local arrays: C arrays, which are in registers if all indices are constants after unrolling, and in local memory otherwise.


@emits(thread.alloc_local)
def _alloc_local(e: Emitter, op: Op) -> None:
    t = op.result.type
    assert isinstance(t, LocalType)
    made = Variable(e.names.fresh(op.result.name or "own"), c_type_of(t), t.count, mutable=True)
    e.refs[op.result] = made
    e.out.bare(f"{made.declaration};")


def _element(e: Emitter, op: Op, register: Index) -> str:
    """The array element of a register."""
    memory, index = op.operands[:2]
    assert memory is not None
    ref = e.refs[memory]
    offset = e.entry(op.attrs["offsets"], register)
    if index is None:
        return ref.at(offset)
    place = e.at(index, 0)
    return ref.at(place if offset == "0" else f"{place} + {offset}")


@spells(thread.load_local)
def _load_local(e: Emitter, op: Op, *_: str) -> str:
    return _element(e, op, e.index)


@emits(thread.store_local)
def _store_local(e: Emitter, op: Op) -> None:
    _, _, value, mask = op.operands
    assert value is not None

    def text(index: Index) -> str:
        on = "" if mask is None else f"if ({e.at(mask, index)}) "
        return f"{on}{_element(e, op, index)} = {e.at(value, index)};"

    e.unrolled(len(op.attrs["offsets"]), [(op.loc, text)])


# Shared memory


def _address(e: Emitter, memory: Value, index: Value, offsets: IndexTable, access: Index) -> str:
    """`smem + 4 * i + 16 * r`: the address of an access. Constants are last, so that ptxas folds them into the instruction's
    immediate offset."""
    assert isinstance(memory.type, SharedArrayType)
    itemsize, number = memory.type.element.itemsize, e.number(index)
    start = 0 if number is None else int(number)
    terms = [e.at(memory, 0)]
    if number is None:
        place = e.at(index, 0)
        terms.append(place if itemsize == 1 else f"{itemsize} * {parenthesised(place)}")
    offset = e.entry(tuple([itemsize * (start + entry) for entry in offsets]), access)
    return " + ".join(terms + ([] if offset == "0" else [offset]))


def element_address(e: Emitter, memory: Value, index: Value) -> str:
    """The address of one element of a shared array."""
    return _address(e, memory, index, (0,), 0)


def _texts(e: Emitter, op: Op, mask: Value | None, index: Index) -> tuple[str, str | None]:
    """Address and predicate of an access."""
    memory, first = op.operands[:2]
    assert memory is not None and first is not None
    on = None if mask is None else e.at(mask, index)
    return _address(e, memory, first, op.attrs["offsets"], index), on


def _moves(op: Op, mask: Value | None) -> tuple[AccessFunction, tuple[IndexTable, ...]]:
    """The access shape, and the registers of all accesses."""
    memory = op.operands[0]
    assert memory is not None and isinstance(memory.type, SharedArrayType)
    vec: int = op.attrs["vec"]
    masked: Masked = "" if mask is None else "if"
    registers = tuple([tuple(range(i * vec, (i + 1) * vec)) for i in range(len(op.attrs["offsets"]))])
    return AccessFunction("shared", memory.type.element, vec, masked), registers


@emits(thread.load_shared)
def _load_shared(e: Emitter, op: Op) -> None:
    mask = op.operand("mask")
    moves, registers = _moves(op, mask)
    if count_of(op.result.type) is None:
        e.define(op.result, access.read(e, moves, *_texts(e, op, mask, 0)))
        return
    read_registers(e, moves, e.variable(op.result), registers, partial(_texts, e, op, mask))


@emits(thread.store_shared)
def _store_shared(e: Emitter, op: Op) -> None:
    value, mask = op.operand("value"), op.operand("mask")
    assert value is not None
    moves, registers = _moves(op, mask)
    write_registers(e, moves, value, registers, partial(_texts, e, op, mask))


@emits(thread.atomic_shared)
def _atomic_shared(e: Emitter, op: Op) -> None:
    memory, index, value, mask = op.operands
    assert memory is not None and index is not None and value is not None
    assert isinstance(memory.type, SharedArrayType)
    kind: str = op.attrs["kind"]
    scope = "cta" if e.func.attrs.num_ctas == 1 else "cluster"
    atomic = atomics.Atomic(kind, memory.type.element, "relaxed", scope, mask is not None, "shared")
    operands = [_address(e, memory, index, (0,), 0), e.at(value), *([] if mask is None else [e.at(mask)])]
    e.call_for(op.result, f"{atomics.combine(e, op, atomic)}({', '.join(operands)})")


# Checks


@emits(thread.bounds)
def _bounds(e: Emitter, op: Op) -> None:
    """An assertion, whose message contains the index and the view's history."""
    sizes: IndexTable = op.attrs["sizes"]
    values = [e.at(value) for value in op.uses]
    indices, given = values[: len(sizes)], iter(values[len(sizes) :])
    limits = [next(given) if size < 0 else str(size) for size in sizes]
    outside = " || ".join(f"{i} < 0 || {i} >= {limit}" for i, limit in zip(indices, limits, strict=True))
    place = f"{op.loc}: " if op.loc else ""
    shown = ", ".join(["%lld"] * len(sizes))
    text = f"{place}index ({shown}) is outside of {op.attrs['view']}, which has ({shown}) elements"
    text = text.replace("%", "%%").replace("%%lld", "%lld") + " [pid (%d, %d, %d), thread %d]\n"
    numbers = ", ".join(f"(i64){value}" for value in (*indices, *limits))
    e.out.line(
        f"if ({outside}) {{ printf({string(text)}, {numbers}, {program_place(e)}, threadIdx.x); "
        'asm volatile("trap;"); }'
    )
