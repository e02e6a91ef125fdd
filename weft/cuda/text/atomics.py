"""Atomics as prelude functions: one PTX instruction if there is one, else a compare-and-swap loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from weft.cuda.emitter import Emitter
from weft.cuda.rules.arith import extreme
from weft.cuda.text.prelude import Piece
from weft.cuda.text.spelling import c_type, is_small_float
from weft.errors import fail
from weft.errors.compiler import CUDA_ATOMIC_TYPE
from weft.ir.types import DType

if TYPE_CHECKING:
    from weft.ir.core import Op

_LETTER = {16: "h", 32: "r", 64: "l"}
_NATIVE_FLOAT_ADD = {"f32": ("f32", "f"), "f64": ("f64", "d"), "f16": ("noftz.f16", "h")}
_SIGNS = {"and": "&", "or": "|", "xor": "^"}


@dataclass(frozen=True, slots=True)
class Atomic:
    """One kind of atomic: operation, element type, PTX memory order and scope, whether it is predicated, the memory space, and
    whether the result of one that is predicated off is 0 rather than undefined."""

    kind: str
    dtype: DType
    order: str
    scope: str
    masked: bool
    space: Literal["global", "shared", "shared::cluster"] = "global"
    or_zero: bool = False

    @property
    def name(self) -> str:
        """The name of the function."""
        if self.space != "global":
            # Atomics on shared memory always have the same order and scope, so the name omits them.
            masked = [] if not self.masked else ["or_zero"] if self.or_zero else ["if"]
            space = "shared" if self.space == "shared" else "cluster"
            return "_".join([f"atomic_{space}", self.kind, self.dtype.code, *masked])
        return "_".join(["atomic", self.kind, self.dtype.code, self.order, self.scope, *["if"] * self.masked])

    @property
    def prefix(self) -> str:
        """The instruction before the operation."""
        return f"atom.{self.order}.{self.scope}.{self.space}"

    @property
    def pointer(self) -> str:
        """The C type of the address."""
        return f"{c_type(self.dtype)}*" if self.space == "global" else "u32"

    @property
    def address(self) -> str:
        """The address as an operand of inline assembly."""
        return f'"{"l" if self.space == "global" else "r"}"(p)'


def combine(e: Emitter, op: Op, atomic: Atomic) -> str:
    """The function `old = f(p, value[, on])`: a read-modify-write with `value`.

    Raises CompilationError (cuda-atomic-type) for elements of less than 16 bits.
    """
    dtype = atomic.dtype
    if dtype.bits < 16:
        raise fail(CUDA_ATOMIC_TYPE, loc=op.loc, kind=atomic.kind, dtype=dtype, bits=dtype.bits)
    native = _native(e, atomic)
    piece = _instruction(atomic, *native) if native else _loop(e, op, atomic)
    return e.pieces.define(atomic.name, piece)


def exchange(e: Emitter, atomic: Atomic) -> str:
    """The function `old = f(p, compare, value[, on])`: compare-and-swap."""
    type, letter, bits = c_type(atomic.dtype), _LETTER[atomic.dtype.bits], atomic.dtype.bits
    word = f"u{bits}"
    on = ", bool on" if atomic.masked else ""
    asm = _predicated(atomic, f"{atomic.prefix}.cas.b{bits} %0, [%1], %2, %3;", f'"={letter}"(old)', [
        atomic.address, f'"{letter}"(__builtin_bit_cast({word}, compare))', f'"{letter}"(__builtin_bit_cast({word}, value))',
    ])  # fmt: skip
    text = (
        f"DEV {type} {atomic.name}({atomic.pointer} p, {type} compare, {type} value{on}) {{\n"
        f"  {word} old; {asm}\n  return __builtin_bit_cast({type}, old); }}"
    )
    return e.pieces.define(atomic.name, Piece(text, _struct(atomic.dtype)))


def reduction(e: Emitter, dtype: DType, vec: int, scope: str, masked: bool) -> str:
    """The function `f(p, x[, on])`: relaxed additions of `vec` neighbours to memory by one instruction."""
    narrow = is_small_float(dtype)
    kind = f"noftz.v{vec}.{'bf16' if dtype.is_bf16() else 'f16'}" if narrow else f"v{vec}.{dtype.code}"
    name = "_".join(["reduce_add", f"{dtype.code}x{vec}", scope, *["if"] * masked])
    words = [f'"h"(__builtin_bit_cast(u16, x[{i}]))' if narrow else f'"f"(x[{i}])' for i in range(vec)]
    operands = ['"l"(p)', *words]
    braces = ", ".join(f"%{i + 1}" for i in range(vec))
    instruction = f"red.relaxed.{scope}.global.add.{kind} [%0], {{{braces}}};"
    on, guarded = "", instruction
    if masked:
        on, operands = ", bool on", [*operands, '"r"((int)on)']
        guarded = f"{{\\n.reg .pred on;\\nsetp.ne.b32 on, %{vec + 1}, 0;\\n@on {instruction}\\n}}"
    text = (
        f"DEV void {name}({c_type(dtype)}* p, const {c_type(dtype)}* x{on}) {{\n"
        f'  asm volatile("{guarded}" : : {", ".join(operands)} : "memory"); }}'
    )
    return e.pieces.define(name, Piece(text, _struct(dtype)))


def _native(e: Emitter, atomic: Atomic) -> tuple[str, str] | None:
    """The operation with its type, and the constraint, if PTX has the instruction."""
    kind, dtype = atomic.kind, atomic.dtype
    if dtype.bits == 16 and dtype.is_int():
        return None
    if kind == "add" and not dtype.is_int():
        if dtype.is_bf16():
            return ("add.noftz.bf16", "h") if e.target.has_bf16_atomics else None
        return f"add.{_NATIVE_FLOAT_ADD[dtype.code][0]}", _NATIVE_FLOAT_ADD[dtype.code][1]
    letter = _LETTER[dtype.bits]
    if kind == "xchg" or kind in _SIGNS:
        ptx = "exch" if kind == "xchg" else kind
        return (f"{ptx}.b{dtype.bits}", letter) if dtype.bits >= 32 else None
    if not dtype.is_int():
        return None
    # PTX has `atom.add.u64` but no `.s64` (PTX ISA, atom); in two's complement they are the same.
    signed = dtype.kind == "int" and not (kind == "add" and dtype.bits == 64)
    return f"{kind}.{'s' if signed else 'u'}{dtype.bits}", letter


def _instruction(atomic: Atomic, ptx: str, letter: str) -> Piece:
    type = c_type(atomic.dtype)
    # `exch` and `cas` have untyped `.b` operands, so floats are passed in integer registers.
    bits = ptx.startswith("exch") and atomic.dtype.is_floating()
    word = f"u{atomic.dtype.bits}" if bits or is_small_float(atomic.dtype) else type
    value, result = ("value", "old") if word == type else (
        f"__builtin_bit_cast({word}, value)", f"__builtin_bit_cast({type}, old)",
    )  # fmt: skip
    on = ", bool on" if atomic.masked else ""
    initial, tied = (" = 0", "+") if atomic.or_zero else ("", "=")
    asm = _predicated(
        atomic,
        f"{atomic.prefix}.{ptx} %0, [%1], %2;",
        f'"{tied}{letter}"(old)',
        [atomic.address, f'"{letter}"({value})'],
    )
    text = (
        f"DEV {type} {atomic.name}({atomic.pointer} p, {type} value{on}) {{\n"
        f"  {word} old{initial}; {asm}\n  return {result}; }}"
    )
    return Piece(text, _struct(atomic.dtype))


def _loop(e: Emitter, op: Op, atomic: Atomic) -> Piece:
    """A compare-and-swap loop, which retries until the value has not changed in between."""
    type, bits = c_type(atomic.dtype), atomic.dtype.bits
    word = f"u{bits}"
    swap = Atomic("cas", atomic.dtype, atomic.order, atomic.scope, masked=False, space=atomic.space)
    exchange(e, swap)
    default = f"__builtin_bit_cast({type}, ({word})0)" if atomic.or_zero else "value"
    on, guard = (", bool on", f"  if (!on) return {default};\n") if atomic.masked else ("", "")
    text = (
        f"DEV {type} {atomic.name}({atomic.pointer} p, {type} value{on}) {{\n{guard}"
        f"  {_initial_load(atomic)}\n"
        "  for (;;) {\n"
        f"    const {type} old = __builtin_bit_cast({type}, seen);\n"
        f"    const {type} now = {_combined(e, op, atomic)};\n"
        f"    const {word} found = __builtin_bit_cast({word}, {swap.name}(p, old, now));\n"
        "    if (found == seen) return old;\n"
        "    seen = found; } }"
    )
    return Piece(text, _struct(atomic.dtype))


def _initial_load(atomic: Atomic) -> str:
    """The initial load of the loop."""
    bits = atomic.dtype.bits
    if atomic.space == "global":
        return f"u{bits} seen = *(volatile u{bits}*)p;"
    return f'u{bits} seen; asm volatile("ld.volatile.{atomic.space}.b{bits} %0, [%1];" : "={_LETTER[bits]}"(seen) : "r"(p));'


def _combined(e: Emitter, op: Op, atomic: Atomic) -> str:
    kind, dtype = atomic.kind, atomic.dtype
    if kind == "xchg":
        return "value"
    if kind in _SIGNS:
        return f"({c_type(dtype)})(old {_SIGNS[kind]} value)"
    if kind in ("min", "max"):
        return extreme(e, op, kind, dtype, False, "old", "value")
    if dtype.is_int():
        return e.call("add_wrap", "old", "value")
    e.pieces.use(f"operator+({dtype.code})")
    return "old + value"


def _predicated(atomic: Atomic, instruction: str, output: str, inputs: list[str]) -> str:
    if not atomic.masked:
        return f'asm volatile("{instruction}" : {output} : {", ".join(inputs)} : "memory");'
    guarded = f"{{\\n.reg .pred on;\\nsetp.ne.b32 on, %{len(inputs) + 1}, 0;\\n@on {instruction}\\n}}"
    return f'asm volatile("{guarded}" : {output} : {", ".join([*inputs, chr(34) + "r" + chr(34) + "((int)on)"])} : "memory");'


def _struct(dtype: DType) -> tuple[str, ...]:
    return (dtype.code,) if is_small_float(dtype) else ()
