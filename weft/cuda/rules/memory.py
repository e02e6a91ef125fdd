"""Global memory: addresses, vector loads and stores, atomics, polls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from weft.cuda.emitter import Emitter, emits, spells
from weft.cuda.text import accesses as access
from weft.cuda.text import atomics, polls
from weft.cuda.text.accesses import AccessFunction, Masked
from weft.cuda.text.refs import Index, Variable
from weft.cuda.text.spelling import c_type, c_type_of, string
from weft.cuda.text.tables import IndexTable, parenthesised
from weft.ir.core import Op, Value
from weft.ir.types import DType
from weft.ops import memory, mma
from weft.ops.check import pointer_of


@spells(memory.addptr)
def _addptr(e: Emitter, op: Op, ptr: str, offset: str) -> str:
    return f"{ptr} + {offset}"


def _pointee(op: Op) -> DType:
    ptr = op.operands[0]
    assert ptr is not None
    return pointer_of(ptr).element_ty


def _modifiers(e: Emitter, op: Op) -> str:
    """The cache hints of an access; a policy of L2 is defined for its function."""
    cache, eviction, prefetch = op.attrs["cache"], op.attrs["eviction"], op.attrs.get("prefetch")
    access.define_policy(e, op.attrs["l2"])
    hint = access.HINT if op.attrs["l2"] else ""
    return (cache or (f".L1::{eviction}" if eviction else "")) + hint + (f".L2::{prefetch}B" if prefetch else "")


def _strength(op: Op) -> str:
    """`.acquire.gpu`, `.volatile`, or nothing."""
    order, scope = op.attrs["order"], op.attrs["scope"]
    if order:
        return f".{order}.{scope}"
    return access.VOLATILE if op.attrs.get("volatile") else access.WEAK


def address(
    e: Emitter, ptr: Value, offsets: tuple[IndexTable, ...], strides: Sequence[Value | None], index: Index
) -> str:
    """`p + stride * (r % 4) + 8 * r`: the address of an access. Constants are last, so that ptxas folds them into the
    instruction's immediate offset."""
    constants, *tables = offsets
    terms = [e.at(ptr, index)]
    for stride, table in zip(strides, tables, strict=True):
        assert stride is not None
        terms += _scaled(e, stride, table, index)
    offset = e.entry(constants, index)
    return " + ".join(terms + ([] if offset == "0" else [offset]))


def _scaled(e: Emitter, stride: Value, table: IndexTable, index: Index) -> list[str]:
    factor, text = e.entry(table, index), e.at(stride)
    if factor == "0":
        return []
    wide = text if c_type(stride.type.element) in ("i64", "u64") else f"(i64){text}"
    return [wide if factor == "1" else f"{wide} * {parenthesised(factor)}"]


def _address(e: Emitter, op: Op, strides: Sequence[Value | None], index: Index) -> str:
    ptr = op.operands[0]
    assert ptr is not None
    return address(e, ptr, op.attrs["offsets"], strides, index)


def consecutive(registers: tuple[IndexTable, ...]) -> IndexTable | None:
    """The first register of each access, if the registers of each access are consecutive."""
    first = tuple([group[0] for group in registers])
    runs = all(group == tuple(range(group[0], group[0] + len(group))) for group in registers)
    return first if runs else None


def plus(base: str, offset: str) -> str:
    """`x + 4 * r`, or `x` alone."""
    return base if offset == "0" else f"{base} + {offset}"


Texts = Callable[[Index], tuple[str, str | None]]
"""Address and predicate of an access."""


def read_registers(
    e: Emitter, a: AccessFunction, into: Variable, registers: tuple[IndexTable, ...], texts: Texts
) -> None:
    """The accesses of a load; registers that are not consecutive are loaded through a small array."""
    read_vectors(e, into, registers, lambda part, index: access.load(e, a, part, *texts(index)), keeps=a.masked == "or")


def read_vectors(
    e: Emitter,
    into: Variable,
    registers: tuple[IndexTable, ...],
    statement: Callable[[str, Index], str],
    *,
    keeps: bool,
) -> None:
    """A statement for each access, given its registers, which it may leave as they are (`keeps`); those that are not
    consecutive are read through a small array."""
    first = consecutive(registers)
    if first is not None and into.count is not None:
        e.unrolled(len(first), [(e.out.loc, lambda index: statement(plus(into.name, e.entry(first, index)), index))])
        return
    with e.registers(len(registers)) as index:
        places = [into.at(e.entry(table, index)) for table in zip(*registers, strict=True)]
        initial = f" = {{{', '.join(places)}}}" if keeps else ""
        part = e.names.fresh("part")
        e.out.statement(f"{into.type} {part}[{len(places)}]{initial};")
        e.out.statement(statement(part, index))
        for j, place in enumerate(places):
            e.out.statement(f"{place} = {part}[{j}];")


def write_registers(
    e: Emitter, a: AccessFunction, value: Value, registers: tuple[IndexTable, ...], texts: Texts
) -> None:
    """The accesses of a store, each from its registers."""
    ref = e.refs[value]
    if registers and registers[0] and len(registers) * len(registers[0]) == 1:
        e.out.statement(access.write(e, a, texts(0)[0], ref.at(registers[0][0]), texts(0)[1]))
        return

    def statement(part: str, index: Index) -> str:
        address, mask = texts(index)
        return access.store(e, a, address, part, mask)

    write_vectors(e, value, registers, statement)


def write_vectors(
    e: Emitter, value: Value, registers: tuple[IndexTable, ...], statement: Callable[[str, Index], str]
) -> None:
    """A statement for each access, given its registers; those that are not consecutive are copied to a small array."""
    ref, first = e.refs[value], consecutive(registers)
    if first is not None and isinstance(ref, Variable) and ref.count is not None:
        e.unrolled(len(registers), [(e.out.loc, lambda index: statement(plus(ref.name, e.entry(first, index)), index))])
        return
    with e.registers(len(registers)) as index:
        picked = [e.picked(ref, table).at(index) for table in zip(*registers, strict=True)]
        part = e.names.fresh("part")
        e.out.statement(f"const {c_type_of(value.type)} {part}[{len(picked)}] = {{{', '.join(picked)}}};")
        e.out.statement(statement(part, index))


def _on(e: Emitter, mask: Value | None, index: Index) -> str | None:
    return None if mask is None else e.at(mask, index)


def _access(op: Op, masked: Masked, hints: str, multimem: str) -> AccessFunction:
    strength, l2 = _strength(op), op.attrs["l2"]
    return AccessFunction("global", _pointee(op), op.attrs["vec"], masked, hints, strength, l2=l2, multimem=multimem)


def _multimem(way: str, op: Op, kind: str) -> str:
    """`ld_reduce.global.add.acc::f32`: an instruction that combines; empty for an ordinary access."""
    element = _pointee(op)
    accurate = way == "ld_reduce" and kind == "add" and element.is_floating() and element.bits == 16
    return f"{way}.global.{kind}{'.acc::f32' * accurate}" if kind else ""


@emits(memory.load_regs)
def _load(e: Emitter, op: Op) -> None:
    _, mask, other, *strides = op.operands
    masked: Masked = "" if mask is None else "if" if other is None else "or"
    hints = _modifiers(e, op)
    a = _access(op, masked, hints, _multimem("ld_reduce", op, op.attrs["multimem"]))
    if op.attrs["count"] == 1:
        default = e.at(other, 0) if masked == "or" and other is not None else None
        e.define(op.result, access.read(e, a, _address(e, op, strides, 0), _on(e, mask, 0), default))
        return
    into = e.variable(op.result)
    if other is not None and mask is not None:
        e.copy(op.result, e.refs[other])
    read_registers(
        e, a, into, op.attrs["registers"], lambda index: (_address(e, op, strides, index), _on(e, mask, index))
    )


@emits(memory.store_regs)
def _store(e: Emitter, op: Op) -> None:
    _, value, mask, *strides = op.operands
    assert value is not None
    masked: Masked = "" if mask is None else "if"
    hints = _modifiers(e, op)
    a = _access(op, masked, hints, "st.global" if op.attrs["multimem"] else "")
    write_registers(
        e, a, value, op.attrs["registers"], lambda index: (_address(e, op, strides, index), _on(e, mask, index))
    )


def _parts(
    e: Emitter, op: Op, way: Literal["load", "store"], strides: Sequence[Value | None]
) -> Callable[[str, Index], str]:
    """The statement for some elements of an access, given its registers."""
    name = access.part(e, _access(op, "", _modifiers(e, op), ""), way)
    mask, begin, end = (op.operand(name) for name in ("mask", "begin", "end"))
    assert mask is not None

    def statement(registers: str, index: Index) -> str:
        low = "0" if begin is None else e.at(begin, index)
        high = str(op.attrs["vec"]) if end is None else e.at(end, index)
        return f"{name}({_address(e, op, strides, index)}, {registers}, {e.at(mask, index)}, {low}, {high});"

    return statement


@emits(memory.load_part)
def _load_part(e: Emitter, op: Op) -> None:
    _, x, _, _, _, *strides = op.operands
    assert x is not None
    into = e.variable(op.result)
    e.copy(op.result, e.refs[x])
    read_vectors(e, into, op.attrs["registers"], _parts(e, op, "load", strides), keeps=True)


@emits(memory.store_part)
def _store_part(e: Emitter, op: Op) -> None:
    _, value, _, _, _, *strides = op.operands
    assert value is not None
    write_vectors(e, value, op.attrs["registers"], _parts(e, op, "store", strides))


@emits(memory.atomic_regs)
def _atomic(e: Emitter, op: Op) -> None:
    atomic = atomics.Atomic(op.attrs["kind"], _pointee(op), op.attrs["order"], op.attrs["scope"], _is_masked(op))
    _exchanged(e, op, atomics.combine(e, op, atomic))


@emits(memory.reduce_regs)
def _reduce(e: Emitter, op: Op) -> None:
    _, value, mask, *strides = op.operands
    assert value is not None
    if op.attrs["multimem"]:
        a = _multimem(f"red.relaxed.{op.attrs['scope']}", op, op.attrs["kind"])
        given = AccessFunction("global", _pointee(op), op.attrs["vec"], "" if mask is None else "if", multimem=a)
        texts: Texts = lambda index: (_address(e, op, strides, index), _on(e, mask, index))  # noqa: E731
        write_registers(e, given, value, op.attrs["registers"], texts)
        return
    name = atomics.reduction(e, _pointee(op), op.attrs["vec"], op.attrs["scope"], mask is not None)

    def statement(registers: str, index: Index) -> str:
        on = [] if mask is None else [e.at(mask, index)]
        return f"{name}({', '.join([_address(e, op, strides, index), registers, *on])});"

    write_vectors(e, value, op.attrs["registers"], statement)


@emits(memory.atomic_cas_regs)
def _atomic_cas(e: Emitter, op: Op) -> None:
    atomic = atomics.Atomic("cas", _pointee(op), op.attrs["order"], op.attrs["scope"], _is_masked(op))
    _exchanged(e, op, atomics.exchange(e, atomic))


def _is_masked(op: Op) -> bool:
    return op.operand("mask") is not None


def _exchanged(e: Emitter, op: Op, name: str) -> None:
    """The old values of an atomic, register by register."""

    e.call_each(op, lambda index: f"{name}({', '.join(e.at(value, index) for value in op.uses)})")


@emits(memory.poll_regs)
def _poll(e: Emitter, op: Op) -> None:
    """Each thread polls its addresses one after another, all until the same time."""
    ptr, expected, mask, timeout, *details = op.operands
    assert ptr is not None and expected is not None
    end: polls.End = "until" if timeout is not None else "watched" if e.func.attrs.debug else "never"
    if details:
        # ptxas lets no wgmma of a kernel that calls a function, such as printf, run asynchronously (C7510 of CUDA 13.0).
        end = "silent" if mma.wgmma in e.func.body.kinds and not e.func.attrs.debug else "signal"
    poll = polls.Poll(_pointee(op), op.attrs["order"], op.attrs["scope"], mask is not None, end, op.attrs["at_least"])
    name = polls.function(e, poll)
    last: list[str] = []
    if timeout is not None:
        until = e.names.fresh("until")
        e.out.statement(f"const u64 {until} = {polls.clock(e)}() + (u64){e.at(timeout)};")
        last = [until]
    elif poll.end == "watched":
        last = [string(_report(op, ptr))]
    elif poll.end == "signal":
        last = [string(_unsignalled(op)), f"{op.attrs['patience']}ull"]
    elif poll.end == "silent":
        last, details = [f"{op.attrs['patience']}ull"], []

    def call(index: Index) -> str:
        on = [] if mask is None else [e.at(mask, index)]
        told = [e.at(detail, index) for detail in details if detail is not None]
        return f"{name}({', '.join([e.at(ptr, index), e.at(expected, index), *on, *last, *told])})"

    e.call_each(op, call)


def _report(op: Op, ptr: Value) -> str:
    """The message of a poll that has waited for too long."""
    place = f"{op.loc}: " if op.loc else ""
    text = f"{place}gl.atomic_poll has waited for {polls.PATIENCE // 10**9} s on {ptr.name or 'memory'}".replace(
        "%", "%%"
    )
    return f"{text} at %p to become %lld; it holds %lld [pid (%d, %d, %d)]\n"


def _unsignalled(op: Op) -> str:
    """The message of a wait for a signal that has not come, or for a word that has not become a value."""
    place = f"{op.loc}: ".replace("%", "%%") if op.loc else ""
    what, awaited = ("signal", "a signal of rank %d on flag %d") if op.attrs["signal"] else (
        "value", "word %d"
    )  # fmt: skip
    waited = f"gl.wait_{what} has waited for {op.attrs['patience'] / 1e9:g} s"
    return f"{place}rank %d, program (%d, %d, %d): {waited} for {awaited}\n"
