"""Prints and assertions."""

from __future__ import annotations

from weft.cuda.emitter import Emitter, emits
from weft.cuda.rules.program import program_index
from weft.cuda.text.casts import cast
from weft.cuda.text.refs import Index
from weft.cuda.text.spelling import count_of, is_small_float, string
from weft.ir.core import Op, Value
from weft.ir.types import DType, float32
from weft.ops import debug


def program_place(e: Emitter) -> str:
    """The program's index in the grid, as three arguments of printf."""
    return f"{program_index(e, 0)}, blockIdx.y, blockIdx.z"


def _thread_place(block: tuple[int, int, int]) -> str:
    """The thread's index in a block of these sizes, as three arguments of printf."""
    x, y, _ = block
    return f"threadIdx.x % {x}u, threadIdx.x / {x}u % {y}u, threadIdx.x / {x * y}u"


def _format(value: Value, hexadecimal: bool) -> str:
    element = value.type.element
    if not isinstance(element, DType):
        return "0x%016llx"
    if element.is_floating():
        return "%f"
    size = "ll" if element.bits == 64 else ""
    if hexadecimal:
        return f"0x%0{max(element.bits // 4, 1)}{size}x"
    return f"%{size}{'u' if element.kind == 'uint' else 'd'}"


def _argument(e: Emitter, op: Op, value: Value, index: Index, hexadecimal: bool) -> str:
    element, text = value.type.element, e.at(value, index)
    if not isinstance(element, DType):
        return f"(u64){text}"
    if element.is_floating():
        return cast(e, op, text, element, float32) if is_small_float(element) else text
    # printf's arguments are promoted with sign extension. A narrow integer in hexadecimal is masked to its own digits.
    return f"(u{element.bits}){text}" if hexadecimal and element.bits in (8, 16) else text


@emits(debug.print_)
def _print(e: Emitter, op: Op) -> None:
    operands = op.uses
    rank, hexadecimal = op.attrs["coordinates"], op.attrs["hex"]
    values, places = operands[: len(operands) - rank], operands[len(operands) - rank :]
    block = e.func.attrs.block
    thread = "" if rank or block is None else _thread_place(block)
    where = f"idx ({', '.join(['%d'] * rank)}) " if rank else "thread (%u, %u, %u) " if thread else ""
    shown = ", ".join(_format(value, hexadecimal) for value in values)
    prefix = op.attrs["prefix"].replace("%", "%%")
    text = string(f"pid (%d, %d, %d) {where}{prefix}{f': {shown}' if values else ''}\n")

    def line(index: Index) -> str:
        arguments = [thread] if thread else [e.at(value, index) for value in places]
        arguments += [_argument(e, op, value, index, hexadecimal) for value in values]
        return f"printf({', '.join([text, program_place(e), *arguments])});"

    counts = {count_of(value.type) for value in operands} - {None}
    e.unrolled(max((count for count in counts if count), default=1), [(op.loc, line)])


@emits(debug.assert_)
def _assert(e: Emitter, op: Op) -> None:
    condition, mask = op.operands
    assert condition is not None
    place = f"{op.loc}: " if op.loc else ""
    text = string(f"{place}assertion failed: {op.attrs['message']}".replace("%", "%%") + " [pid (%d, %d, %d)]\n")

    def line(index: Index) -> str:
        test = f"!({e.at(condition, index)})" if mask is None else f"{e.at(mask, index)} && !({e.at(condition, index)})"
        return f'if ({test}) {{ printf({text}, {program_place(e)}); asm volatile("trap;"); }}'

    e.unrolled(count_of(condition.type) or 1, [(op.loc, line)])


@emits(debug.breakpoint_)
def _breakpoint(e: Emitter, op: Op) -> None:
    """Emits nothing: breakpoints stop the simulator only."""
