"""Arithmetic between kernel values and Python numbers: promotion and broadcasting, then one operation."""

from __future__ import annotations

from enum import Enum
from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.core import OpDef
from weft.ir.types import DType, Pointer, float32, int1, int32, int64
from weft.language.advice import integer_instead
from weft.language.broadcast import common_form, constant, fit
from weft.language.marks import anywhere, builtin
from weft.language.promote import common_dtype, convert, is_number, literal_dtype, unify
from weft.language.runtime_value import describe
from weft.language.tensor import Operand, apply, tensor
from weft.ops import arith, memory


class PropagateNan(Enum):
    """What `minimum`, `maximum` and `clamp` do with a NaN: NONE gives the other operand, ALL gives NaN."""

    NONE = 0
    ALL = 1


@builtin
def add(x: Operand, y: Operand) -> tensor:
    """`x + y`. Integers wrap. An integer added to a pointer counts elements.

    Operands are scalars, tiles that broadcast against each other in one layout, or Python numbers.
    """
    if _is_pointer(x) or _is_pointer(y):
        return _offset(x, y) if _is_pointer(x) else _offset(y, x)
    return _compute(arith.add, "+", x, y)


@builtin
def sub(x: Operand, y: Operand) -> tensor:
    """`x - y`. Integers wrap. A pointer minus an integer is a pointer; two pointers cannot be subtracted."""
    if _is_pointer(x) or _is_pointer(y):
        return _offset_back(x, y)
    return _compute(arith.sub, "-", x, y)


@builtin
def mul(x: Operand, y: Operand) -> tensor:
    """`x * y`; for integers the low half of the product."""
    return _compute(arith.mul, "*", x, y)


@builtin
def truediv(x: Operand, y: Operand) -> tensor:
    """`x / y` in float32, or in float64 where an operand is float64; integers are converted first.

    float32 may be off by 2 units in the last place; `div_rn` rounds correctly.
    """
    dtype = division_dtype("/", x, y)
    return apply(arith.div, *unify("/", x, y, dtype=dtype))


@builtin
def floordiv(x: Operand, y: Operand) -> tensor:
    """`x // y` of integers, which truncates towards zero as in C. Raises language-floor-division, language-mixed-signs."""
    dtype = _integer_division("//", x, y)
    if dtype.is_floating():
        raise fail(errors.FLOOR_DIVISION, left=describe(x), right=describe(y))
    return apply(arith.div, *unify("//", x, y, dtype=dtype))


@builtin
def mod(x: Operand, y: Operand) -> tensor:
    """`x % y` with the sign of `x`, as in C; floats in float32 or float64. Raises language-mixed-signs."""
    dtype = _integer_division("%", x, y)
    return apply(arith.rem, *unify("%", x, y, dtype=_widened(dtype)))


@builtin
def negative(x: tensor) -> tensor:
    """`-x`. Unsigned integers wrap; a bool is converted to int32."""
    dtype = arithmetic_dtype("-", x)
    value = convert(x, dtype)
    if dtype.is_int_unsigned():
        return _compute(arith.sub, "-", 0, value)
    return apply(arith.math, value, fn="neg")


@builtin
def minimum(x: Operand, y: Operand, propagate_nan: PropagateNan = PropagateNan.NONE) -> tensor:
    """The element-wise minimum. If one operand is NaN the result is the other one, unless `propagate_nan` is ALL."""
    return _compute(arith.minimum, "minimum", x, y, nan=_propagates(propagate_nan))


@builtin
def maximum(x: Operand, y: Operand, propagate_nan: PropagateNan = PropagateNan.NONE) -> tensor:
    """The element-wise maximum. If one operand is NaN the result is the other one, unless `propagate_nan` is ALL."""
    return _compute(arith.maximum, "maximum", x, y, nan=_propagates(propagate_nan))


@builtin
def clamp(x: Operand, min: Operand, max: Operand, propagate_nan: PropagateNan = PropagateNan.NONE) -> tensor:
    """`minimum(maximum(x, min), max)`, element by element. A NaN in `x` gives `min`, or NaN when `propagate_nan` is ALL."""
    dtype = arithmetic_dtype("clamp", x, min, max)
    value, low, high = unify("clamp", x, min, max, dtype=dtype)
    if dtype.is_floating():
        return apply(arith.clamp, value, low, high, nan=_propagates(propagate_nan))
    return minimum(maximum(value, low), high)


@anywhere
def cdiv(x: Any, div: Any) -> Any:
    """`x` divided by `div`, rounded up, for `x >= 0` and `div > 0`. Python integers give a Python integer.

    >>> cdiv(100, 32)
    4
    """
    if isinstance(x, tensor) or isinstance(div, tensor):
        return floordiv(add(x, sub(div, 1)) if isinstance(div, tensor) else add(x, div - 1), div)
    return -(-x // div)


@anywhere
def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least `n`; 1 for `n <= 1`.

    >>> next_power_of_2(100)
    128
    """
    return 1 << max(n - 1, 0).bit_length()


def arithmetic_dtype(what: str, *operands: Any) -> DType:
    """The promoted element type of an arithmetic operation; bool is promoted to int32. fp8 has no arithmetic
    (language-fp8-arithmetic)."""
    dtype = common_dtype(what, operands)
    if dtype.is_fp8():
        raise fail(errors.FP8_ARITHMETIC, what=what, dtype=dtype.name)
    return int32 if dtype == int1 else dtype


def division_dtype(what: str, *operands: Any) -> DType:
    """The element type of true division: float64 if an operand is float64, else float32."""
    dtype = common_dtype(what, operands)
    return _widened(dtype) if dtype.is_floating() else float32


def _widened(dtype: DType) -> DType:
    return float32 if dtype.is_floating() and dtype.bits < 32 else dtype


def _compute(kind: OpDef, what: str, *operands: Any, **attrs: Any) -> tensor:
    return apply(kind, *unify(what, *operands, dtype=arithmetic_dtype(what, *operands)), **attrs)


def _integer_division(what: str, x: Any, y: Any) -> DType:
    dtype = common_dtype(what, (x, y))
    both = isinstance(x, tensor) and isinstance(y, tensor)
    if both and dtype.is_int() and {x.dtype.kind, y.dtype.kind} == {"int", "uint"}:
        raise fail(errors.MIXED_SIGNS, what=what, left=describe(x), right=describe(y))
    return int32 if dtype == int1 else dtype


def _propagates(mode: object) -> bool:
    if not isinstance(mode, PropagateNan):
        raise fail(errors.PROPAGATE_NAN, got=repr(mode))
    return mode is PropagateNan.ALL


def _is_pointer(x: object) -> bool:
    return isinstance(x, tensor) and isinstance(x.element, Pointer)


def _offset(ptr: Any, offset: Any) -> tensor:
    dtype = _offset_dtype("+", ptr, offset)
    form = common_form("+", (ptr, offset))
    places = constant(offset, dtype, form) if not isinstance(offset, tensor) else fit(convert(offset, dtype), form)
    return apply(memory.addptr, fit(ptr, form), places)


def _offset_back(x: Any, y: Any) -> tensor:
    if not _is_pointer(x) or _is_pointer(y):
        raise fail(errors.POINTER_DIFFERENCE, left=describe(x), right=describe(y))
    dtype = _offset_dtype("-", x, y)
    if not isinstance(y, tensor):
        return _offset(x, -y)
    return _offset(x, negative(convert(y, int64) if dtype.is_int_unsigned() else y))


def _offset_dtype(what: str, ptr: tensor, offset: Any) -> DType:
    if _is_pointer(offset):
        raise fail(errors.POINTER_OPERAND, what=f"{what} with another pointer", pointer=describe(ptr))
    dtype = literal_dtype(offset) if is_number(what, offset) else offset.element
    if dtype.is_floating():
        raise fail(
            errors.POINTER_OFFSET, pointer=describe(ptr), offset=describe(offset), instead=integer_instead(offset)
        )
    return int32 if dtype == int1 else dtype
