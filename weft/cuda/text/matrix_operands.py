"""Register operands of matrix instructions: `asm` operands, packed into words, and PTX vectors of them."""

from __future__ import annotations

from collections.abc import Sequence

from weft.cuda.emitter import Emitter
from weft.cuda.text.refs import Index, Variable
from weft.cuda.text.spelling import c_type_of, is_small_float
from weft.ir.core import Value
from weft.ir.types import DType, RegsType

WORD_BITS = 32
PER_LINE = 16
"""The number of operands on a line of the wrapper."""
PTX = {
    "f16": "f16", "bf16": "bf16", "f32": "tf32", "f8e4m3": "e4m3", "f8e5m2": "e5m2", "i8": "s8", "u8": "u8",
}  # fmt: skip
"""PTX operand types; float32 operands are read as tf32."""
PTX_ACCUMULATOR = {"f32": "f32", "f16": "f16", "i32": "s32"}
"""PTX accumulator types."""


def struct_of(element: DType) -> tuple[str, ...]:
    """The prelude piece that defines the C type of an element, if there is one."""
    return (element.code,) if is_small_float(element) else ()


def in_place(name: str, element: DType, count: int, how: str = "+") -> list[str]:
    """`asm` operands for `count` elements of an array, packed into words: read and written, or only written with "="."""
    letter, array = "r", f"((u32*){name})"
    if element.bits == WORD_BITS:
        letter, array = "f" if element.is_floating() else "r", name
    return [f'"{how}{letter}"({array}[{i}])' for i in range(count * element.bits // WORD_BITS)]


def operand_lines(items: Sequence[str]) -> str:
    """Items separated by commas, `PER_LINE` on a line."""
    rows = [", ".join(items[i : i + PER_LINE]) for i in range(0, len(items), PER_LINE)]
    return ",\n      ".join(rows)


def ptx_vector(first: int, count: int, continued: bool = False) -> str:
    """A PTX vector of operands, split into C string literals; lines of a macro are `continued`."""
    names = [f"%{first + i}" for i in range(count)]
    rows = [", ".join(names[i : i + PER_LINE]) for i in range(0, count, PER_LINE)]
    end = " \\" if continued else ""
    return "{" + f', "{end}\n    "'.join(rows) + "}"


# By the number of elements in a word: the expression of a word of an array, and the prelude piece that packs it.
_WORDS = {1: "__builtin_bit_cast(u32, {}[{}])", 2: "pack16({} + {})", 4: "pack8<4>({} + {})"}
PACKERS = {1: (), 2: ("pack16",), 4: ("pack8",)}


def word_at(array: str, index: Index, per: int) -> str:
    """The expression of a word of `per` elements of an array."""
    first = per * index if isinstance(index, int) else index if per == 1 else f"{per} * {index}"
    return _WORDS[per].format(array, first)


def word_operands(name: str, element: DType, count: int) -> tuple[list[str], tuple[str, ...]]:
    """Operands for `count` elements of an array, packed into words, and the prelude pieces that pack them."""
    per = WORD_BITS // element.bits
    return [f'"r"({word_at(name, i, per)})' for i in range(count // per)], (*struct_of(element), *PACKERS[per])


def array_of(e: Emitter, value: Value) -> str:
    """The name of a C array with the registers of a value: its variable, or a copy."""
    ref = e.refs[value]
    if isinstance(ref, Variable) and ref.count is not None and not ref.local:
        return ref.name
    assert isinstance(value.type, RegsType)
    name = e.names.fresh(value.name or "part")
    e.out.bare(f"{c_type_of(value.type)} {name}[{value.type.count}];")
    e.unrolled(value.type.count, [(e.out.loc, lambda index: f"{name}[{index}] = {ref.at(index)};")])
    return name
