"""The derivative of a tile with respect to another, element by element, from the operations in between.

It is found forwards: every operation behind the tile gets, for each of its results that depends on it, the sum over operands of
the operation's derivative times the operand's. Nothing is emitted for results that do not depend on it, such as comparisons and
what is loaded by indices of one's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.core import Op, OpDef, Value
from weft.ir.types import DType
from weft.language.arith import add, mul, sub, truediv
from weft.language.context import current
from weft.language.logic import where
from weft.language.marks import builtin
from weft.language.math import cos, exp, sin
from weft.language.runtime_value import wrap
from weft.language.tensor import apply, tensor
from weft.ops import arith, libdevice, tile

Factor = Any
"""A tile, or a number where it is the same for all elements."""

FUNCTIONS: dict[str, Callable[[tensor, tensor], Factor]] = {
    "exp": lambda x, y: y,
    "exp2": lambda x, y: mul(y, math.log(2)),
    "log": lambda x, y: truediv(1.0, x),
    "log2": lambda x, y: truediv(1 / math.log(2), x),
    "sin": lambda x, y: cos(x),
    "cos": lambda x, y: sub(0.0, sin(x)),
    "sqrt": lambda x, y: truediv(0.5, y),
    "sqrt_rn": lambda x, y: truediv(0.5, y),
    "rsqrt": lambda x, y: truediv(mul(y, -0.5), x),
    "erf": lambda x, y: mul(exp(mul(mul(x, x), -1.0)), 2 / math.sqrt(math.pi)),
    "tanh": lambda x, y: sub(1.0, mul(y, y)),
    "abs": lambda x, y: where(x < 0, -1.0, 1.0),
    "neg": lambda x, y: -1.0,
    "floor": lambda x, y: 0.0,
    "ceil": lambda x, y: 0.0,
    "expm1": lambda x, y: add(y, 1.0),
    "log1p": lambda x, y: truediv(1.0, add(x, 1.0)),
}
"""Derivatives of functions by their argument and their result."""

PARTIAL: dict[OpDef, tuple[Callable[[list[tensor]], Factor], ...]] = {
    arith.add: (lambda x: 1.0, lambda x: 1.0),
    arith.sub: (lambda x: 1.0, lambda x: -1.0),
    arith.mul: (lambda x: x[1], lambda x: x[0]),
    arith.div: (lambda x: truediv(1.0, x[1]), lambda x: truediv(mul(x[2], -1.0), x[1])),
    arith.div_rn: (lambda x: truediv(1.0, x[1]), lambda x: truediv(mul(x[2], -1.0), x[1])),
    arith.minimum: (lambda x: where(x[0] < x[1], 1.0, 0.0), lambda x: where(x[0] < x[1], 0.0, 1.0)),
    arith.maximum: (lambda x: where(x[0] > x[1], 1.0, 0.0), lambda x: where(x[0] > x[1], 0.0, 1.0)),
    arith.fma: (lambda x: x[1], lambda x: x[0], lambda x: 1.0),
    arith.clamp: (lambda x: where((x[0] > x[1]) & (x[0] < x[2]), 1.0, 0.0),),
}
"""Partial derivatives by each operand, by the operands and the result behind them. Bounds of a clamp are not differentiated."""

MOVES = (arith.cast, tile.convert, tile.set_layout, tile.broadcast, tile.expand_dims, tile.reshape, tile.permute)
"""Operations that give every element of their operand a place, or another type: the derivative goes the same way."""


@builtin
def derivative(result: tensor, by: tensor) -> Factor:
    """The derivative of a tile of floats with respect to `by`, from which it was computed in straight-line code: a tile, or a
    number where it is the same for all elements. At kinks it is that of one side. Raises CompilationError
    (language-derivative) at the operation that has none."""
    found: dict[Value, Factor] = {by.handle: 1.0}
    for op in current().builder.behind(by.handle):
        used = {x for inner in (op, *(each for region in op.regions for each in region.every)) for x in inner.uses}
        floats = [x for x in op.results if isinstance(x.type.element, DType) and x.type.element.is_floating()]
        # Bits of floats have no derivative; what is compared, or rounded to an integer, has that of a constant.
        if (floats or op.kind is arith.bitcast) and not used.isdisjoint(found):
            found[op.results[0]] = _of(op, found)
    return found.get(result.handle, 0.0)


def _of(op: Op, found: dict[Value, Factor]) -> Factor:
    """The derivative of an operation's result."""
    values: list[tensor] = [wrap(x) for x in (*op.uses, *op.results)]
    if op.kind in MOVES:
        inner = found[op.uses[0]]
        return apply(op.kind, inner, **op.attrs) if isinstance(inner, tensor) else inner
    if op.kind is arith.select:
        one, other = (found.get(x, 0.0) for x in op.uses[1:])
        both = not isinstance(one, tensor) and not isinstance(other, tensor)
        return one if both and one == other else where(values[0], one, other)
    if op.kind in (arith.math, libdevice.call) and op.attrs["fn"] in FUNCTIONS:
        return _times(found[op.uses[0]], FUNCTIONS[op.attrs["fn"]](*values))
    partial = PARTIAL.get(op.kind, ())
    if not partial or any(x in found for x in op.uses[len(partial) :]):
        name = op.attrs.get("fn", op.kind.name)
        raise fail(errors.DERIVATIVE, what=name, known=", ".join(f"gl.{each}" for each in FUNCTIONS)).at(op.loc)
    total: Factor = 0.0
    for x, of in zip(op.uses, partial, strict=False):
        if x in found:
            term = _times(found[x], of(values))
            total = term if _is(total, 0.0) else add(total, term) if isinstance(term, tensor) else _plus(total, term)
    return total


def _times(x: Factor, y: Factor) -> Factor:
    for one, other in ((x, y), (y, x)):
        if _is(one, 1.0) or _is(other, 0.0):
            return other
    return mul(x, y) if isinstance(x, tensor) or isinstance(y, tensor) else x * y


def _plus(x: Factor, y: float) -> Factor:
    return add(x, y) if isinstance(x, tensor) else x + y


def _is(x: Factor, number: float) -> bool:
    return not isinstance(x, tensor) and x == number
