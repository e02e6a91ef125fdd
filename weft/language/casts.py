"""Conversion between element types."""

from __future__ import annotations

from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import DType, Element, Pointer
from weft.language.advice import element_type
from weft.language.marks import builtin
from weft.language.promote import convert, to_tensor
from weft.language.runtime_value import describe
from weft.language.tensor import apply, tensor
from weft.ops import arith
from weft.ops.memory import Atomic

_ROUNDINGS = {"rtne": "rn", "rtz": "rz"}


@builtin
def cast(x: Any, dtype: Element, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> tensor:
    """Convert `x` to elements of type `dtype`; shape and layout are unchanged.

    Integers are truncated or extended. A float is truncated to an integer and saturates (NaN gives 0). The conversion to bool
    is `!= 0`. Floats round to nearest even; `fp_downcast_rounding="rtz"` rounds a conversion to a narrower float towards zero,
    except to fp8. Conversions to fp8 saturate to the largest finite number. int64 and uint64 convert to pointers and back.
    `bitcast=True` reinterprets the bits.

    Raises CompilationError: language-dtype, language-cast-rounding, language-bitcast, language-cast-pointer.
    """
    value = to_tensor(x)
    check_element(dtype)
    if bitcast:
        return _bitcast(value, dtype)
    return convert(value, dtype, _rounding(value, dtype, fp_downcast_rounding))


def check_element(dtype: object) -> None:
    """Reject anything but an element type (language-dtype)."""
    if not isinstance(dtype, (DType, Pointer)):
        raise fail(errors.DTYPE, got=repr(dtype), instead=element_type(dtype))


def check_dtype(dtype: object) -> None:
    """Reject anything but a number type (language-dtype)."""
    if not isinstance(dtype, DType):
        raise fail(errors.DTYPE, got=repr(dtype), instead=element_type(dtype))


def check_atomic(kind: Atomic, element: DType) -> None:
    """Reject an element type that an atomic does not work on (language-atomic-type)."""
    wide = element.bits in (32, 64)
    if kind == "add":
        allowed, fits = "floats of 16 bits or more and integers of 32 or 64 bits", wide or element.bits == 16
        fits = fits and (wide or element.is_floating())
    elif kind in ("max", "min", "xchg"):
        allowed, fits = "types of 32 or 64 bits", wide
    else:
        allowed, fits = "integers of 32 or 64 bits", wide and element.is_int()
    if not fits:
        raise fail(errors.ATOMIC_TYPE, kind=kind, dtype=element.name, allowed=allowed)


def _bitcast(x: tensor, dtype: Element) -> tensor:
    if x.element.bits != dtype.bits:
        raise fail(errors.BITCAST, value=describe(x), dtype=dtype.name, bits=x.element.bits, other=dtype.bits)
    return x if x.element == dtype else apply(arith.bitcast, x, element=dtype)


def _rounding(x: tensor, dtype: Element, rounding: str | None) -> str:
    if rounding is None:
        return "rn"
    narrows = x.element.is_floating() and dtype.is_floating() and dtype.bits < x.element.bits
    # cvt to e4m3 and e5m2 has .rn as its only rounding, and requires .satfinite (PTX ISA, cvt).
    known = ("rtne",) if dtype.is_floating() and dtype.bits == 8 else _ROUNDINGS
    if rounding not in known or not narrows:
        raise fail(errors.CAST_ROUNDING, rounding=repr(rounding), value=describe(x), dtype=dtype.name)
    return _ROUNDINGS[rounding]
