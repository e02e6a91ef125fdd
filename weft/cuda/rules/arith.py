"""Arithmetic, comparison, selection, casts and math functions.

Half precision has its own operators in the prelude. Other half precision functions, and all of float8, are computed in float32
and rounded again, which equals a single rounding: float32's 24 bits of significand are at least 2 p + 2 for p = 11 (float16).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.cuda.emitter import Emitter, emits, refers, spells
from weft.cuda.rules.elements import member
from weft.cuda.text.casts import cast
from weft.cuda.text.prelude import Piece
from weft.cuda.text.refs import Index, Inline, Ref
from weft.cuda.text.small import unpacker
from weft.cuda.text.spelling import c_type, constant, count_of, is_small_float
from weft.ir.core import Op
from weft.ir.types import DType, Pointer, float32, int64
from weft.ops import arith
from weft.ops.check import dtype_of

Build = Callable[[Sequence[str]], str]


def _in_float(e: Emitter, op: Op, build: Build, *operands: str) -> str:
    """A function of small floats, computed in float32."""
    dtype = dtype_of(op.result)
    return cast(e, op, build([cast(e, op, text, dtype, float32) for text in operands]), float32, dtype)


@refers(arith.constant)
def _constant(e: Emitter, op: Op) -> Ref:
    value = op.attrs["value"]
    e.constants[op.result] = value
    return Inline(constant(value, dtype_of(op.result)))


# Addition, multiplication, division


def _sum(name: str, sign: str) -> Callable[[Emitter, Op, str, str], str]:
    def rule(e: Emitter, op: Op, x: str, y: str) -> str:
        dtype = dtype_of(op.result)
        if dtype.is_int():
            wraps = (dtype.kind == "int" or dtype.bits < 32) and op.result not in e.exact
            return e.call(f"{name}_wrap", x, y) if wraps else f"{x} {sign} {y}"
        if dtype.is_fp8():
            return _in_float(e, op, lambda xs: f"{xs[0]} {sign} {xs[1]}", x, y)
        if is_small_float(dtype):
            e.pieces.use(f"operator{sign}({dtype.code})")
        return f"{x} {sign} {y}"

    return rule


spells(arith.add)(_sum("add", "+"))
spells(arith.sub)(_sum("sub", "-"))
spells(arith.mul)(_sum("mul", "*"))


@spells(arith.div)
def _div(e: Emitter, op: Op, x: str, y: str) -> str:
    dtype = dtype_of(op.result)
    if dtype.code == "f32":
        return e.call("div_full(float)", x, y)
    return f"{x} / {y}" if not is_small_float(dtype) else _div_rn(e, op, x, y)


@spells(arith.div_rn)
def _div_rn(e: Emitter, op: Op, x: str, y: str) -> str:
    dtype = dtype_of(op.result)
    if dtype.code == "f64":
        return f"__ddiv_rn({x}, {y})"
    return _in_float(e, op, lambda xs: f"__fdiv_rn({', '.join(xs)})", x, y)


@spells(arith.rem)
def _rem(e: Emitter, op: Op, x: str, y: str) -> str:
    dtype = dtype_of(op.result)
    if dtype.is_int():
        return f"{x} % {y}"
    if dtype.code == "f64":
        return f"fmod({x}, {y})"
    return _in_float(e, op, lambda xs: f"fmodf({', '.join(xs)})", x, y)


@spells(arith.fma)
def _fma(e: Emitter, op: Op, x: str, y: str, z: str) -> str:
    return fma(e, op, dtype_of(op.result), x, y, z)


def fma(e: Emitter, op: Op, dtype: DType, x: str, y: str, z: str) -> str:
    """`x * y + z` with one rounding, in any float type."""
    if dtype.code == "f32":
        return f"__fmaf_rn({x}, {y}, {z})"
    if dtype.code == "f64":
        return f"__fma_rn({x}, {y}, {z})"
    if not dtype.is_fp8():
        return e.call(f"fma_rn({dtype.code})", x, y, z)
    # A float8 product plus a float8 addend can need more than float32's 24 bits of significand; float64 represents it exactly.
    wide = (f"(double){cast(e, op, text, dtype, float32)}" for text in (x, y, z))
    return cast(e, op, e.call("to_f32_odd(double)", f"__fma_rn({', '.join(wide)})"), float32, dtype)


@spells(arith.umulhi)
def _umulhi(e: Emitter, op: Op, x: str, y: str) -> str:
    dtype = dtype_of(op.result)
    name, word = ("__umulhi", "u32") if dtype.bits == 32 else ("__umul64hi", "u64")
    return f"{name}({x}, {y})" if dtype.kind == "uint" else f"({c_type(dtype)}){name}(({word}){x}, ({word}){y})"


@spells(arith.popcount)
def _popcount(e: Emitter, op: Op, x: str) -> str:
    source = op.operands[0]
    assert source is not None
    return f"__popc({x})" if dtype_of(source).bits == 32 else f"__popcll({x})"


# Minimum and maximum


def _extreme(e: Emitter, op: Op, name: str, x: str, y: str) -> str:
    return extreme(e, op, name, dtype_of(op.result), op.attrs["nan"], x, y)


def extreme(e: Emitter, op: Op, name: str, dtype: DType, nan: bool, x: str, y: str) -> str:
    """`min` or `max` of two numbers. If one is NaN, the result is the other one, or NaN if `nan` is set."""
    if dtype.is_int():
        if dtype.bits >= 32:
            return f"{name}({x}, {y})"
        return f"({c_type(dtype)}){name}((int){x}, (int){y})"
    piece = f"{name}_{'nan' if nan else 'num'}"
    if not dtype.is_fp8():
        return e.call(f"{piece}({c_type(dtype)})", x, y)
    return _in_float(e, op, lambda xs: e.call(f"{piece}(float)", *xs), x, y)


@spells(arith.minimum)
def _minimum(e: Emitter, op: Op, x: str, y: str) -> str:
    return _extreme(e, op, "min", x, y)


@spells(arith.maximum)
def _maximum(e: Emitter, op: Op, x: str, y: str) -> str:
    return _extreme(e, op, "max", x, y)


@spells(arith.clamp)
def _clamp(e: Emitter, op: Op, x: str, low: str, high: str) -> str:
    return _extreme(e, op, "min", _extreme(e, op, "max", x, low), high)


# Bitwise operations


def _bitwise(sign: str) -> Callable[[Emitter, Op, str, str], str]:
    return lambda e, op, x, y: f"{x} {sign} {y}"


spells(arith.and_)(_bitwise("&"))
spells(arith.or_)(_bitwise("|"))
spells(arith.xor)(_bitwise("^"))


@spells(arith.shl)
def _shl(e: Emitter, op: Op, x: str, n: str) -> str:
    return e.call("shl", x, n)


@spells(arith.shr)
def _shr(e: Emitter, op: Op, x: str, n: str) -> str:
    amount = op.operands[1]
    number = None if amount is None else e.number(amount)
    # In C++ a shift by the width or more is undefined. PTX clamps the amount (PTX ISA, shr); so does the prelude's function.
    if number is not None and 0 <= number < op.result.type.element.bits >= 32:
        return f"{x} >> {n}"
    return e.call("shr", x, n)


# Comparison and selection

_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@spells(arith.cmp)
def _cmp(e: Emitter, op: Op, x: str, y: str) -> str:
    lhs = op.operands[0]
    assert lhs is not None
    element = lhs.type.element
    if isinstance(element, DType) and is_small_float(element):
        x, y = (cast(e, op, text, element, float32) for text in (x, y))
    return f"{x} {_SIGNS[op.attrs['predicate']]} {y}"


@spells(arith.select)
def _select(e: Emitter, op: Op, condition: str, x: str, y: str) -> str:
    return f"{condition} ? {x} : {y}"


# Conversions


@spells(arith.cast)
def _cast(e: Emitter, op: Op, x: str) -> str:
    source = op.operands[0]
    assert source is not None
    return cast(e, op, x, dtype_of(source), op.attrs["dtype"], op.attrs["rounding"])


@spells(arith.bitcast)
def _bitcast(e: Emitter, op: Op, x: str) -> str:
    source = op.operands[0]
    assert source is not None
    old, new = source.type.element, op.result.type.element
    if all(isinstance(t, Pointer) or t.is_int() for t in (old, new)):
        return f"({c_type(new)}){x}"
    return f"__builtin_bit_cast({c_type(new)}, {x})"


@emits(arith.unpack_int4)
def _unpack_int4(e: Emitter, op: Op) -> None:
    """Words of four bytes, or of one 32-bit register, at a time; the last word of bytes may have fewer."""
    (x,) = op.uses
    dtype, source = dtype_of(op.results[0]), dtype_of(x)
    name = unpacker(e.pieces, dtype, source, op.attrs["interleaved"])
    targets = [e.variable(result) for result in op.results]
    count, each = count_of(x.type), 32 // source.bits
    numbers = e.names.fresh("numbers")

    def word(places: list[Index]) -> None:
        parts = [f"(u32)({'u8' if each > 1 else 'u32'}){e.at(x, place)}" for place in places]
        text = " | ".join(f"{part} << {8 * j}" if j else part for j, part in enumerate(parts))
        e.out.statement(f"{c_type(dtype)} {numbers}[8]; {name}({numbers}, {text});")
        slots = [target.at(place) for place in places for target in targets]
        e.out.statement(" ".join(f"{slot} = {numbers}[{k}];" for k, slot in enumerate(slots)))

    if whole := (count or 1) // each:
        with e.registers(whole) as index, e.braces(""):
            word([member(index, each, j) for j in range(each)])
    if rest := (count or 1) % each:
        with e.braces(""):
            word([whole * each + j for j in range(rest)])


# Math functions. float32 uses the approximate instruction if its error is within the bound in `ops.arith.MATH`.

_FLOAT = {
    "exp": "expf", "exp2": "exp2_approx(float)", "log": "logf", "log2": "log2f", "sin": "sinf", "cos": "cosf",
    "sqrt": "sqrt_approx(float)", "rsqrt": "rsqrt_approx(float)", "erf": "erff", "tanh": "tanhf", "sqrt_rn": "__fsqrt_rn",
    "floor": "floorf", "ceil": "ceilf", "abs": "fabsf", "neg": "-",
}  # fmt: skip
_DOUBLE = {
    **{fn: fn for fn in ("exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "tanh", "floor", "ceil")},
    "sqrt_rn": "__dsqrt_rn", "abs": "fabs", "neg": "-",
}  # fmt: skip


@spells(arith.math)
def _math(e: Emitter, op: Op, x: str) -> str:
    dtype, fn = dtype_of(op.result), op.attrs["fn"]
    if dtype.is_int():
        negative = e.call("sub_wrap", constant(0, dtype), x)
        return negative if fn == "neg" else f"{x} < 0 ? {negative} : {x}"
    if is_small_float(dtype):
        return (
            _sign_bit(x, dtype, fn)
            if fn in ("abs", "neg")
            else _in_float(e, op, lambda xs: _float_math(e, fn, xs[0]), x)
        )
    return _float_math(e, fn, x) if dtype.code == "f32" else f"{_DOUBLE[fn]}({x})"


def _float_math(e: Emitter, fn: str, x: str) -> str:
    name = _FLOAT[fn]
    if "(" in name:
        return e.call(name, x)
    # A negative constant keeps its parentheses: `--` is the decrement operator.
    return f"-{x}" if fn == "neg" and not x.startswith("-") else f"{name}({x})"


def _sign_bit(x: str, dtype: DType, fn: str) -> str:
    sign = 1 << (dtype.bits - 1)
    change = f"^ {sign:#x}" if fn == "neg" else f"& {sign - 1:#x}"
    return f"{c_type(dtype)}{{(u{dtype.bits})({x}.bits {change})}}"


# Pairs: one instruction for two registers, or two scalar ones where the target has no such.

_OPERATORS = {"add": "+", "sub": "-", "mul": "*"}


@emits(arith.packed, arith.packed_fma)
def _packed(e: Emitter, op: Op) -> None:
    dtype, kind = dtype_of(op.result), op.attrs.get("kind", "fma")
    count = count_of(op.result.type)
    if count is None:
        e.define(op.result, _one(e, op, kind, dtype, [e.at(x) for x in op.uses]))
        return
    into = e.variable(op.result)
    pairs = count // 2 if _has_pairs(e, dtype, kind) else 0

    def pair(index: Index) -> str:
        first = 2 * index if isinstance(index, int) else f"2 * {index}"
        second = 2 * index + 1 if isinstance(index, int) else f"2 * {index} + 1"
        texts = [e.at(x, at) for x in op.uses for at in (first, second)]
        return f"{name}({into.name} + {first}, {', '.join(texts)});"

    if pairs:
        name = _pair_function(e, kind, dtype, len(op.uses))
        e.unrolled(pairs, [(op.loc, pair)])
    for at in range(2 * pairs, count):
        e.out.statement(f"{into.at(at)} = {_one(e, op, kind, dtype, [e.at(x, at) for x in op.uses])};")


def _has_pairs(e: Emitter, dtype: DType, kind: str) -> bool:
    if dtype == int64:
        return False
    if dtype.bits == 32:
        return e.target.has_f32x2
    return not dtype.is_bf16() or kind not in _OPERATORS or e.target.has_bf16_arith


def _one(e: Emitter, op: Op, kind: str, dtype: DType, texts: list[str]) -> str:
    if dtype == int64:
        return f"{_wide_function(e, kind, len(texts))}({', '.join(texts)})"
    if kind == "fma":
        return fma(e, op, dtype, *texts)
    if kind in _OPERATORS:
        if is_small_float(dtype):
            e.pieces.use(f"operator{_OPERATORS[kind]}({dtype.code})")
        return f"{texts[0]} {_OPERATORS[kind]} {texts[1]}"
    return extreme(e, op, kind, dtype, False, *texts)


def _wide_function(e: Emitter, kind: str, operands: int) -> str:
    """The function `name(x, y, ...)` of int64 that are two float32 each."""
    name, letters = f"{kind}2_i64", "xyz"[:operands]
    parts = ", ".join(f"i64 {each}" for each in letters)
    if e.target.has_f32x2:
        inputs = ", ".join(f'"l"({each})' for each in letters)
        places = ", ".join(f"%{i}" for i in range(operands + 1))
        text = f'i64 r; asm("{_f32x2(kind)} {places};" : "=l"(r) : {inputs}); return r;'
        return e.pieces.define(name, Piece(f"DEV i64 {name}({parts}) {{ {text} }}"))
    scalar = {"add": "__fadd_rn", "sub": "__fsub_rn", "mul": "__fmul_rn", "fma": "__fmaf_rn"}[kind]
    low, high = (
        f"{scalar}({', '.join(f'__uint_as_float((u32)({each}{shift}))' for each in letters)})"
        for shift in ("", " >> 32")
    )
    text = f"return (i64)((u64)__float_as_uint({high}) << 32 | __float_as_uint({low}));"
    return e.pieces.define(name, Piece(f"DEV i64 {name}({parts}) {{ {text} }}"))


def _f32x2(kind: str) -> str:
    # ptxas (13.0, sm_100a) contracts mul.f32x2 and add.f32x2 to FFMA2 where neither has .rn, also under --fmad=false.
    return f"{kind}{'.rn' if kind in ('fma', 'mul') else ''}.f32x2"


def _pair_function(e: Emitter, kind: str, dtype: DType, operands: int) -> str:
    """The function `name(out, x0, x1, y0, y1, ...)`.

    The moves are part of the assembly: ptxas sees through them, while it takes a PRMT an operand for halves that C++ puts
    together by a shift (13.0, sm_90a)."""
    name, type, wide = f"{kind}2_{dtype.code}", c_type(dtype), dtype.bits == 32
    word, letter, member = ("b64", "f", "") if wide else ("b32", "h", ".bits")
    instruction = _f32x2(kind) if wide else f"{kind}{'.rn' if kind == 'fma' else ''}.{dtype.code}x2"
    letters = "xyz"[:operands]
    packed = " ".join(f"mov.{word} {each}, {{%{2 * i + 2}, %{2 * i + 3}}};" for i, each in enumerate(letters))
    text = f".reg .{word} r, {', '.join(letters)}; {packed} {instruction} r, {', '.join(letters)};"
    inputs = ", ".join(f'"{letter}"({each}{i}{member})' for each in letters for i in range(2))
    parts = ", ".join(f"{type} {each}{i}" for each in letters for i in range(2))
    return e.pieces.define(
        name,
        Piece(
            f"DEV void {name}({type}* out, {parts}) {{\n"
            f'  asm("{{{text} mov.{word} {{%0, %1}}, r;}}"\n'
            f'    : "={letter}"(out[0]{member}), "={letter}"(out[1]{member}) : {inputs}); }}',
            () if wide else (dtype.code,),
        ),
    )
