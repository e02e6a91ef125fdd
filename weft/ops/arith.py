"""Constants, arithmetic, comparison, selection, casts and math functions, on scalars, tiles and register arrays alike.

The operands of an elementwise operation are all scalars, or tiles of one shape and layout, or register arrays of one length.
Integers wrap; integer division and remainder truncate towards zero. Floats follow IEEE 754 round-to-nearest-even unless the
operation says otherwise.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Literal

from weft.ir.core import Attrs, Laws, Value
from weft.ir.define import exact, op
from weft.ir.types import DType, Pointer, ScalarType, Type, bfloat16, float16, float32, int1, int32, int64, with_element
from weft.ops.check import (
    boolean,
    dtype_of,
    floating,
    integer,
    numeric,
    require,
    same_form,
    same_type,
)  # fmt: skip

Predicate = Literal["eq", "ne", "lt", "le", "gt", "ge"]
Packed = Literal["add", "sub", "mul", "min", "max"]
Rounding = Literal["rn", "rz"]

# For each function the error bound of the GPU's float32 version in ulp (0: bit-exact on both back ends).
MATH: dict[str, float] = {
    "exp": 2, "exp2": 2, "log": 3, "log2": 3, "sin": 4, "cos": 4, "sqrt": 3, "rsqrt": 3, "erf": 4, "tanh": 4,
    "sqrt_rn": 0, "floor": 0, "ceil": 0, "abs": 0, "neg": 0,
}  # fmt: skip


# Constant folding (`fold`): exact results, which are wrapped to the type afterwards.

COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
SIGN: dict[str, Callable[[int], int]] = {"neg": operator.neg, "abs": abs}


def _quotient(a: int, b: int) -> int | None:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else None


def _remainder(a: int, b: int) -> int | None:
    quotient = _quotient(a, b)
    return None if quotient is None else a - quotient * b


def _amount(amount: int, dtype: DType) -> int:
    """A shift amount clamped as PTX does: negative amounts, and those above the width, become the width."""
    return amount if 0 <= amount < dtype.bits else dtype.bits


def _high_half(numbers: tuple[int, ...], attrs: Attrs, dtype: DType) -> int:
    mask = (1 << dtype.bits) - 1
    return (numbers[0] & mask) * (numbers[1] & mask) >> dtype.bits


@op("arith.constant", elementwise=True)
def constant(value: int | float | bool, type: Type) -> Type:
    """A compile-time number: a scalar, or every element of a tile or register array."""
    require(isinstance(type.element, DType), "a constant has no pointer type")
    return type


@op("arith.add", elementwise=True, fold=exact(int.__add__), laws=Laws(commutes=True, neutral=0))
def add(lhs: Value, rhs: Value) -> Type:
    """Sum of two numbers of one type."""
    numeric(lhs)
    return same_type(lhs, rhs)


@op("arith.sub", elementwise=True, fold=exact(int.__sub__), laws=Laws(neutral=0, itself="constant"))
def sub(lhs: Value, rhs: Value) -> Type:
    """Difference of two numbers of one type."""
    numeric(lhs)
    return same_type(lhs, rhs)


@op(
    "arith.mul",
    elementwise=True,
    fold=exact(int.__mul__),
    laws=Laws(commutes=True, neutral=1, floats=True, absorbing=0),
)
def mul(lhs: Value, rhs: Value) -> Type:
    """Product of two numbers of one type; for integers the low half."""
    numeric(lhs)
    return same_type(lhs, rhs)


@op("arith.div", elementwise=True, fold=exact(_quotient), laws=Laws(neutral=1, floats=True))
def div(lhs: Value, rhs: Value) -> Type:
    """Quotient. Integers truncate towards zero; float32 may be off by 2 ulp (PTX `div.full`), float64 is rounded correctly."""
    numeric(lhs)
    return same_type(lhs, rhs)


@op("arith.div_rn", elementwise=True)
def div_rn(lhs: Value, rhs: Value) -> Type:
    """Float quotient, correctly rounded."""
    floating(lhs)
    return same_type(lhs, rhs)


@op("arith.rem", elementwise=True, fold=exact(_remainder), laws=Laws(absorbing=1))
def rem(lhs: Value, rhs: Value) -> Type:
    """Remainder with the sign of the dividend: `lhs - trunc(lhs / rhs) * rhs`, exact for floats (C `fmod`)."""
    numeric(lhs)
    return same_type(lhs, rhs)


@op("arith.min", elementwise=True, fold=exact(min), laws=Laws(commutes=True, itself="same"))
def minimum(lhs: Value, rhs: Value, nan: bool = False) -> Type:
    """Smaller of two numbers; -0 < +0. A NaN gives the other operand, or NaN when `nan` is set."""
    numeric(lhs)
    return same_type(lhs, rhs)


@op("arith.max", elementwise=True, fold=exact(max), laws=Laws(commutes=True, itself="same"))
def maximum(lhs: Value, rhs: Value, nan: bool = False) -> Type:
    """Larger of two numbers; -0 < +0. A NaN gives the other operand, or NaN when `nan` is set."""
    numeric(lhs)
    return same_type(lhs, rhs)


@op(
    "arith.and",
    elementwise=True,
    fold=exact(int.__and__),
    laws=Laws(commutes=True, neutral=-1, absorbing=0, itself="same"),
)
def and_(lhs: Value, rhs: Value) -> Type:
    """Bitwise AND of integers or bools."""
    integer(lhs)
    return same_type(lhs, rhs)


@op(
    "arith.or",
    elementwise=True,
    fold=exact(int.__or__),
    laws=Laws(commutes=True, neutral=0, absorbing=-1, itself="same"),
)
def or_(lhs: Value, rhs: Value) -> Type:
    """Bitwise OR of integers or bools."""
    integer(lhs)
    return same_type(lhs, rhs)


@op("arith.xor", elementwise=True, fold=exact(int.__xor__), laws=Laws(commutes=True, neutral=0, itself="constant"))
def xor(lhs: Value, rhs: Value) -> Type:
    """Bitwise XOR of integers or bools."""
    integer(lhs)
    return same_type(lhs, rhs)


@op(
    "arith.shl",
    elementwise=True,
    fold=lambda numbers, attrs, dtype: numbers[0] << _amount(numbers[1], dtype),
    laws=Laws(neutral=0),
)
def shl(lhs: Value, rhs: Value) -> Type:
    """Shift left; an amount of the bit width or more (or negative) gives 0, as PTX `shl` clamps."""
    numeric(lhs)
    integer(lhs)
    return same_type(lhs, rhs)


@op(
    "arith.shr",
    elementwise=True,
    fold=lambda numbers, attrs, dtype: numbers[0] >> _amount(numbers[1], dtype),
    laws=Laws(neutral=0),
)
def shr(lhs: Value, rhs: Value) -> Type:
    """Shift right: arithmetic for signed integers, logical for unsigned ones; amounts clamp to the bit width (PTX `shr`)."""
    numeric(lhs)
    integer(lhs)
    return same_type(lhs, rhs)


@op("arith.umulhi", elementwise=True, fold=_high_half, laws=Laws(commutes=True))
def umulhi(lhs: Value, rhs: Value) -> Type:
    """High half of the product of two 32- or 64-bit integers, interpreted as unsigned."""
    integer(lhs)
    require(dtype_of(lhs).bits in (32, 64), "umulhi needs 32- or 64-bit integers")
    return same_type(lhs, rhs)


@op(
    "arith.popcount",
    elementwise=True,
    fold=lambda numbers, attrs, dtype: (numbers[0] & (1 << dtype.bits) - 1).bit_count(),
)
def popcount(x: Value) -> Type:
    """Number of bits that are set in a 32- or 64-bit integer, as int32."""
    integer(x)
    require(dtype_of(x).bits in (32, 64), "popcount needs 32- or 64-bit integers")
    return with_element(x.type, int32)


@op(
    "arith.cmp",
    elementwise=True,
    fold=lambda numbers, attrs, dtype: COMPARE[attrs["predicate"]](*numbers),
    laws=Laws(itself="constant"),
)
def cmp(lhs: Value, rhs: Value, predicate: Predicate) -> Type:
    """Compare; the result is int1. With a NaN every predicate but `ne` is false."""
    return with_element(same_type(lhs, rhs), int1)


@op("arith.select", elementwise=True)
def select(condition: Value, lhs: Value, rhs: Value) -> Type:
    """`lhs` where the condition holds, else `rhs`. The condition has the same shape and layout, or is a scalar."""
    boolean(condition)
    if not isinstance(condition.type, ScalarType):
        same_form(condition, lhs)
    return same_type(lhs, rhs)


@op("arith.fma", elementwise=True, laws=Laws(commutes=True))
def fma(x: Value, y: Value, z: Value) -> Type:
    """`x * y + z` of floats with one rounding."""
    floating(x)
    return same_type(x, y, z)


@op("arith.packed", elementwise=True)
def packed(x: Value, y: Value, kind: Packed) -> Type:
    """A sum, difference, product, minimum or maximum of floats, two elements per instruction where the target has it. Unlike
    `add` and `mul` these are never contracted. An int64 is two float32, the first in its low half, without `min` and `max`."""
    _packable(x, kind in ("min", "max"))
    return same_type(x, y)


@op("arith.packed_fma", elementwise=True, laws=Laws(commutes=True))
def packed_fma(x: Value, y: Value, z: Value) -> Type:
    """`fma`, two elements per instruction where the target has it, or of the two float32 of each int64."""
    _packable(x)
    return same_type(x, y, z)


def _packable(x: Value, half: bool = False) -> None:
    allowed = (float16, bfloat16) if half else (float16, bfloat16, float32, int64)
    require(x.type.element in allowed, "no pairs of {}", x.type.element)


@op("arith.cast", elementwise=True, fold=exact(int))
def cast(x: Value, dtype: DType, rounding: Rounding = "rn") -> Type:
    """Convert the value: integers wrap or extend, floats round to nearest even (or towards zero), float to integer truncates
    and clamps to the type's range (NaN gives 0), anything to bool is `!= 0`. To fp8, magnitudes clamp to the largest finite
    number."""
    dtype_of(x)
    return with_element(x.type, dtype)


@op("arith.unpack_int4", elementwise=True)
def unpack_int4(x: Value, dtype: DType, interleaved: bool = False) -> tuple[Type, ...]:
    """The four-bit integers of bytes or 32-bit words as floats, which is exact: result k holds the one at bits 4k to 4k+3, in
    two's complement for a signed type of `x`. Registers pair the neighbours 2k and 2k+1, or k and k+4 if `interleaved`."""
    integer(x)
    bits = dtype_of(x).bits
    require(bits == 32 or (bits == 8 and not interleaved), "no four-bit integers in {}", x.type.element)
    require(dtype in (float16, bfloat16), "no four-bit integers to {}", dtype)
    return (with_element(x.type, dtype),) * (bits // 4)


@op("arith.bitcast", elementwise=True)
def bitcast(x: Value, element: DType | Pointer) -> Type:
    """The same bits as another type of the same size; also int64 and uint64 to pointer and back."""
    require(x.type.element.bits == element.bits, "{} and {} differ in size", x.type.element, element)
    return with_element(x.type, element)


@op("arith.math", elementwise=True, fold=lambda numbers, attrs, dtype: SIGN[attrs["fn"]](*numbers))
def math(x: Value, fn: str) -> Type:
    """A function of one float (`abs` and `neg` also of signed integers); `MATH` lists them with their error bounds."""
    require(fn in MATH, "no function {}", fn)
    if fn not in ("abs", "neg"):
        floating(x)
    numeric(x)
    return x.type


@op("arith.clamp", elementwise=True)
def clamp(x: Value, low: Value, high: Value, nan: bool = False) -> Type:
    """`min(max(x, low), high)` of floats; a NaN in `x` gives `low`, or NaN when `nan` is set."""
    floating(x)
    same_form(x, low, high)
    return same_type(x, low, high)
