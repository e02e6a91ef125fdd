"""The author's inline PTX: `$0` operands become `%0`, and narrow elements are packed into registers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from weft.cuda.emitter import Emitter, emits
from weft.cuda.rules.elements import member
from weft.cuda.text.refs import Index, Variable
from weft.cuda.text.spelling import c_type, count_of, string
from weft.errors import fail
from weft.errors.compiler import CUDA_ASM_CONSTRAINT, CUDA_ASM_CONSTRAINTS, CUDA_ASM_OPERAND
from weft.ir.core import Op, Value
from weft.ir.types import Element, SharedArrayType
from weft.ops import asm

# No constraint letter stands for 8 bits ("Inline PTX Assembly in CUDA"): narrow elements are packed into wider registers.
_LETTERS = {"h": ("u16", 16), "r": ("u32", 32), "l": ("u64", 64), "f": ("float", 32), "d": ("double", 64)}
_OUTPUT = re.compile(r"=&?([hrlfd])")
_INPUT = re.compile(r"([hrlfd])")


@dataclass(frozen=True, slots=True)
class Register:
    """A register operand: its constraint, C type and bits, and the elements of a value that it holds.

    `tied` is the number of the result with which an operand shares its register."""

    constraint: str
    type: str
    bits: int
    value: Value
    first: int
    count: int
    tied: int | None = None


def _per_register(element: Element, pack: int) -> int:
    """The number of elements in one register."""
    return 1 if element.bits >= 32 else min(pack, 32 // (element.itemsize * 8))


def _elements(op: Op, value: Value) -> int:
    """The number of a value's elements that one run of the text takes."""
    return op.attrs["pack"] if op.kind in _BY_ELEMENT else count_of(value.type) or 1


def _registers(op: Op) -> tuple[list[Register], list[Register]]:
    """The register operands, results first. Raises CompilationError (cuda-asm-constraints, cuda-asm-constraint)."""
    constraints = op.attrs["constraints"]
    given = [c.strip() for c in constraints.split(",") if c.strip() and not c.strip().startswith("~")]
    slots: list[tuple[Value, int, int]] = []
    for value in (*op.results, *asm.in_order(op)):
        n = _elements(op, value)
        per = _per_register(value.type.element, n)
        slots += [(value, first, min(per, n - first)) for first in range(0, n, per)]
    if len(slots) != len(given):
        packs = f" in packs of {op.attrs['pack']}" if op.kind in _BY_ELEMENT else ""
        raise fail(
            CUDA_ASM_CONSTRAINTS, loc=op.loc, constraints=constraints, got=len(given), need=len(slots), packs=packs,
            outputs=len(op.results), inputs=len(op.uses),
        )  # fmt: skip
    outputs: list[Register] = []
    inputs: list[Register] = []
    for constraint, (value, first, count) in zip(given, slots, strict=True):
        if value in op.results:
            outputs.append(Register(constraint, *_letter(op, _OUTPUT, constraint), value, first, count))
        elif constraint.isdigit() and int(constraint) < len(outputs):
            shared = outputs[int(constraint)]
            inputs.append(Register(constraint, shared.type, shared.bits, value, first, count, int(constraint)))
        else:
            inputs.append(Register(constraint, *_letter(op, _INPUT, constraint), value, first, count))
    return outputs, inputs


def _letter(op: Op, form: re.Pattern[str], constraint: str) -> tuple[str, int]:
    match = form.fullmatch(constraint)
    if match is None:
        raise fail(CUDA_ASM_CONSTRAINT, loc=op.loc, constraint=constraint)
    return _LETTERS[match[1]]


def _ptx(op: Op, outputs: list[Register], inputs: list[Register]) -> str:
    """The author's PTX as a C string; a tied operand is replaced by the result's number.

    Raises CompilationError (cuda-asm-operand)."""
    free = iter(range(len(outputs), len(outputs) + len(inputs)))
    numbers = [*range(len(outputs)), *(next(free) if r.tied is None else r.tied for r in inputs)]

    def operand(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        if int(match[1]) >= len(numbers):
            raise fail(CUDA_ASM_OPERAND, loc=op.loc, number=match[1], count=len(numbers), last=len(numbers) - 1)
        return f"%{numbers[int(match[1])]}"

    return string(re.sub(r"\$(\$|\d+)", operand, op.attrs["asm"].replace("%", "%%")))


@emits(asm.inline_asm, asm.inline_asm_volatile)
def _elementwise(e: Emitter, op: Op) -> None:
    first = next(iter((*op.results, *op.uses)))
    _statement(e, op, op.attrs["pack"], (count_of(first.type) or 1) // op.attrs["pack"])


@emits(asm.block, asm.block_volatile, asm.block_memory)
def _block(e: Emitter, op: Op) -> None:
    _statement(e, op, pack=1, times=1)


_BY_ELEMENT = (asm.inline_asm, asm.inline_asm_volatile)


def _statement(e: Emitter, op: Op, pack: int, times: int) -> None:
    """The statement, in a loop over `times` groups of `pack` registers."""
    outputs, inputs = _registers(op)
    targets = {result: e.variable(result) for result in op.results}
    volatile = " volatile" if op.effects else ""
    with e.registers(times) as index:
        names = [e.names.fresh("out") for _ in outputs]
        before = {r.tied: _packed(e, r, index, pack) for r in inputs if r.tied is not None}
        for i, (name, register) in enumerate(zip(names, outputs, strict=True)):
            e.out.bare(f"{register.type} {name}{f' = {before[i]}' if i in before else ''};")
        results = ", ".join(
            _result(r, name, i in before) for i, (r, name) in enumerate(zip(outputs, names, strict=True))
        )
        operands = ", ".join(f'"{r.constraint}"({_packed(e, r, index, pack)})' for r in inputs if r.tied is None)
        clobbers = ' : "memory"' if op.kind is asm.block_memory else ""
        e.out.line(f"asm{volatile}({_ptx(op, outputs, inputs)} : {results} : {operands}{clobbers});")
        for name, register in zip(names, outputs, strict=True):
            _unpack(e, register, name, targets[register.value], index, pack)


def _result(register: Register, name: str, tied: bool) -> str:
    constraint = register.constraint.replace("=", "+") if tied else register.constraint
    return f'"{constraint}"({name})'


def _packed(e: Emitter, register: Register, index: Index, pack: int) -> str:
    """The packed elements of an operand's register, the first one in the lowest bits."""
    element = register.value.type.element
    if isinstance(register.value.type, SharedArrayType):
        return e.at(register.value)
    places = [member(index, pack, register.first + j) for j in range(register.count)]
    texts = [e.at(register.value, place) for place in places]
    if register.count == 1 and c_type(element) == register.type:
        return texts[0]
    bits = element.itemsize * 8
    words = [f"__builtin_bit_cast(u{bits}, {text})" for text in texts]
    if _two_halves(register):
        joined = f"{e.pieces.use('join16')}({', '.join(words)})"
        return joined if register.type == "u32" else f"__builtin_bit_cast({register.type}, {joined})"
    word = f"u{max(register.bits, bits)}"
    joined = " | ".join(f"({word}){text} << {bits * j}" if j else f"({word}){text}" for j, text in enumerate(words))
    return joined if register.type == word else f"__builtin_bit_cast({register.type}, {joined})"


def _two_halves(register: Register) -> bool:
    return register.count == 2 and register.bits == 32 and register.value.type.element.itemsize == 2


def _unpack(e: Emitter, register: Register, name: str, target: Variable, index: Index, pack: int) -> None:
    """Unpack a result's register into its elements."""
    bits = register.value.type.element.itemsize * 8
    if _two_halves(register):
        word = name if register.type == "u32" else f"__builtin_bit_cast(u32, {name})"
        halves = [e.names.fresh("half") for _ in range(2)]
        e.out.statement(f"u16 {', '.join(halves)}; {e.pieces.use('part16')}({', '.join(halves)}, {word});")
        for j, half in enumerate(halves):
            place = target.at(member(index, pack, register.first + j))
            e.out.statement(f"{place} = __builtin_bit_cast({target.type}, {half});")
        return
    for j in range(register.count):
        place = target.at(member(index, pack, register.first + j))
        if register.count == 1 and target.type == register.type:
            e.out.statement(f"{place} = {name};")
            continue
        word = name if register.type[0] == "u" else f"__builtin_bit_cast(u{register.bits}, {name})"
        part = f"{word} >> {bits * j}" if j else word
        e.out.statement(f"{place} = __builtin_bit_cast({target.type}, (u{bits})({part}));")
