"""Type promotion, by Triton's rules.

The kinds are ordered bool < integer < float. Among floats, float64 takes precedence, then float32; float16 takes precedence
over bfloat16 and fp8; bfloat16 with fp8 promotes to float32, and two different fp8 types to float16. Integers follow C: the
wider type, and at equal width the unsigned one. A Python number is weakly typed: it takes the type of the other operand unless
its kind is higher.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.errors.memory import SHARED_HANDLE_OPERAND
from weft.errors.thread import UNKNOWN_NUMBER
from weft.ir.types import (
    DType,
    Element,
    Pointer,
    bfloat16,
    float16,
    float32,
    float64,
    int1,
    int32,
    int64,
    uint64,
)  # fmt: skip
from weft.language.broadcast import AnyForm, common_form, constant, fit, no_operand
from weft.language.marks import builtin
from weft.language.runtime_value import RuntimeValue, describe, name_of
from weft.language.tensor import Number, apply, tensor
from weft.layout import UNKNOWN
from weft.layout.base import shortened
from weft.ops import arith

_KINDS = {"bool": 0, "int": 1, "uint": 1, "float": 2}
_FLOAT32_MAX = (2 - 2**-23) * 2.0**127


def literal_dtype(value: Number) -> DType:
    """The type of a Python number without other operands: bool, the first of int32, int64, uint64 that holds it, or
    float32."""
    if isinstance(value, bool):
        return int1
    if isinstance(value, float):
        return float64 if math.isfinite(value) and abs(value) > _FLOAT32_MAX else float32
    for dtype in (int32, int64, uint64):
        if dtype.min_value <= value <= dtype.max_value:
            return dtype
    raise fail(errors.INTEGER_RANGE, value=shortened(value))


def promote(a: DType, b: DType) -> DType:
    """The common type of two run-time operands; promotion is commutative."""
    if a is b:
        return a
    if a.is_floating() or b.is_floating():
        return _promote_floats(a, b)
    if a.kind == b.kind or a.bits != b.bits:
        return a if a.bits > b.bits else b
    return a if a.is_int_unsigned() else b


def _promote_floats(a: DType, b: DType) -> DType:
    for dtype in (float64, float32, float16):
        if dtype in (a, b):
            return dtype
    if not (a.is_floating() and b.is_floating()):
        return a if a.is_floating() else b
    return float32 if bfloat16 in (a, b) else float16


def common_dtype(what: str, operands: Sequence[Any]) -> DType:
    """The promoted type of the operands of an operation called `what`. Pointers are rejected (language-pointer-operand)."""
    run_time = [number_dtype(what, x) for x in operands if isinstance(x, tensor)]
    weak = [literal_dtype(x) for x in operands if not isinstance(x, tensor) and is_number(what, x)]
    if not run_time:
        return reduce(promote, weak)
    dtype = reduce(promote, run_time)
    if not weak:
        return dtype
    literal = reduce(promote, weak)
    return dtype if _KINDS[literal.kind] <= _KINDS[dtype.kind] else promote(dtype, literal)


def refuse_unknown(what: str, x: object) -> None:
    """Raises CompilationError (thread-unknown-number) for a size or stride that a layout leaves unknown."""
    if x is UNKNOWN:
        raise fail(UNKNOWN_NUMBER, what=what)


def is_number(what: str, x: object) -> bool:
    """True for a Python number, False for a run-time value. Raises language-operand, or shared-handle-operand, otherwise."""
    if isinstance(x, tensor):
        return False
    if isinstance(x, RuntimeValue):
        raise fail(SHARED_HANDLE_OPERAND, what=what, got=name_of(x))
    refuse_unknown(what, x)
    if not isinstance(x, (int, float)):
        raise no_operand(what, x)
    return True


def number_dtype(what: str, x: tensor) -> DType:
    """The dtype of a run-time value; pointers are rejected."""
    element = x.element
    if isinstance(element, Pointer):
        raise fail(errors.POINTER_OPERAND, what=what, pointer=describe(x))
    return element


def unify(what: str, *operands: Any, dtype: Element) -> tuple[tensor, ...]:
    """All operands converted to one element type, shape and layout: cast, splat and broadcast as `common_form` says."""
    form = common_form(what, operands)
    return tuple([place(x, dtype, form) for x in operands])


def place(x: Any, dtype: Element, form: AnyForm) -> tensor:
    """One operand converted to an element type and a form. A scalar is cast before it is splat."""
    if isinstance(x, tensor):
        return fit(convert(x, dtype), form)
    if isinstance(dtype, Pointer):
        raise fail(errors.POINTER_OPERAND, what="a number", pointer=f"a {dtype.name}")
    return constant(x, dtype, form)


def place_mask(what: str, mask: Any, form: AnyForm) -> tensor | None:
    """A mask as int1 in the form of the access; None if it is None or True. Raises language-mask-type."""
    if mask is None or mask is True:
        return None
    if isinstance(mask, tensor) and mask.element != int1:
        raise fail(errors.MASK_TYPE, what=what, got=name_of(mask))
    if is_number("a mask", mask):
        return constant(bool(mask), int1, form)
    return fit(mask, form)


@builtin
def to_tensor(x: Any) -> tensor:
    """A run-time value; a Python number is converted to a scalar of its default type."""
    return constant(x, literal_dtype(x)) if is_number("to_tensor", x) else x


def convert(x: tensor, dtype: Element, rounding: str = "rn") -> tensor:
    """`cast` of a value to a checked type, with the IR's name of the rounding; a no-op if the type is the same."""
    source = x.element
    if source == dtype:
        return x
    if isinstance(source, Pointer) or isinstance(dtype, Pointer):
        return _convert_pointer(x, source, dtype)
    return apply(arith.cast, x, dtype=dtype, rounding=rounding)


def _convert_pointer(x: tensor, source: Element, dtype: Element) -> tensor:
    if source.bits == dtype.bits and not (source.is_floating() or dtype.is_floating()):
        return apply(arith.bitcast, x, element=dtype)
    if dtype == int1:
        return apply(arith.cast, apply(arith.bitcast, x, element=uint64), dtype=int1)
    if isinstance(dtype, Pointer) and isinstance(source, DType) and source.is_int():
        return apply(arith.bitcast, convert(x, int64), element=dtype)
    raise fail(errors.CAST_POINTER, value=describe(x), dtype=dtype.name)
