"""Scalar operands of type int32 or int1: indices, coordinates, phases and predicates."""

from __future__ import annotations

from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import DType, int1, int32
from weft.language.advice import integer_instead
from weft.language.broadcast import constant
from weft.language.promote import convert
from weft.language.runtime_value import name_of
from weft.language.tensor import tensor


def int32_scalar(what: str, x: Any) -> tensor:
    """A Python integer or an integer scalar as int32; wider scalars are truncated.

    Raises CompilationError (language-integer-scalar), and language-literal-range for a constant out of the range of int32.
    """
    if not isinstance(x, tensor):
        if not hasattr(x, "__index__"):
            raise fail(errors.INTEGER_SCALAR, what=what, got=name_of(x), instead=integer_instead(x))
        return constant(int(x), int32)
    if not is_integer_scalar(x):
        raise fail(errors.INTEGER_SCALAR, what=what, got=name_of(x), instead=integer_instead(x))
    return convert(x, int32)


def is_integer_scalar(x: tensor) -> bool:
    """True for scalars of integer types, bool included."""
    return x.is_scalar and isinstance(x.element, DType) and x.element.is_int()


def predicate(what: str, x: Any) -> tensor | None:
    """A condition as int1; None (no operand) if it is constant true. Raises language-predicate."""
    if isinstance(x, tensor):
        if not is_integer_scalar(x):
            raise fail(errors.PREDICATE, what=what, got=name_of(x))
        return convert(x, int1)
    if not isinstance(x, int):
        raise fail(errors.PREDICATE, what=what, got=name_of(x))
    return None if x else constant(False, int1)
