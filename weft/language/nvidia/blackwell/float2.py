"""Pairs of float32 as values: `x = float2.pack(t, axis=1)`, `y = float2.fma(x, s, b)`, and the tile `float2.unpack(y, axis=1)`.

A pair is the 64 bits of an int64, the first number in the low half: the operand of one instruction on Blackwell. `add2`,
`sub2`, `mul2` and `fma2` use the same instructions, but take tiles as they are and need no packing.
"""

from __future__ import annotations

from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import float32, int64, uint32, uint64
from weft.language.aggregate import aggregate
from weft.language.creation import full_like as filled
from weft.language.logic import bit_or, shift_left, shift_right
from weft.language.marks import builtin
from weft.language.promote import unify
from weft.language.reduction import reduce_one
from weft.language.runtime_value import describe
from weft.language.shape import check_axis, join, permute, reshape, split
from weft.language.tensor import apply, tensor
from weft.ops import arith

__all__ = ["Float2Tensor", "fma", "full_like", "pack", "pack2", "unpack", "unpack2"]


@aggregate
class Float2Tensor:
    """Pairs of float32, with the operators `+`, `-` and `*` on other pairs. Created by `pack` and `pack2`.

    Its `value` is an int64 tile with one element for each pair, or an int64 scalar. Raises language-float2-value."""

    value: tensor

    def __init__(self, value: Any) -> None:
        if not isinstance(value, tensor) or value.element != int64:
            raise fail(errors.FLOAT2_VALUE, got=describe(value))
        self.value = value

    @builtin
    def __add__(self, rhs: Any) -> Any:
        return _computed("add", self, rhs)

    @builtin
    def __sub__(self, rhs: Any) -> Any:
        return _computed("sub", self, rhs)

    @builtin
    def __mul__(self, rhs: Any) -> Any:
        return _computed("mul", self, rhs)

    @builtin
    def sum(self, axis: int) -> Any:
        """The sums along an axis of the pairs, which are pairs themselves."""
        return Float2Tensor(reduce_one(self.value, axis, _sum))


def _sum(x: tensor, y: tensor) -> tensor:
    return apply(arith.packed, x, y, kind="add")


def _computed(kind: arith.Packed, lhs: Float2Tensor, rhs: Any) -> Any:
    if not isinstance(rhs, Float2Tensor):
        return NotImplemented
    return Float2Tensor(apply(arith.packed, *unify(f"float2.{kind}", lhs.value, rhs.value, dtype=int64), kind=kind))


@builtin
def pack2(x0: tensor, x1: tensor) -> Float2Tensor:
    """Pairs of the elements of two float32 tiles of one shape and layout."""
    low, high = (apply(arith.bitcast, x, element=uint32).to(uint64) for x in unify("pack2", x0, x1, dtype=float32))
    return Float2Tensor(apply(arith.bitcast, bit_or(low, shift_left(high, 32)), element=int64))


@builtin
def unpack2(x: Float2Tensor) -> tuple[tensor, tensor]:
    """The two tiles of pairs: the inverse of `pack2`."""
    bits = apply(arith.bitcast, x.value, element=uint64)
    low, high = (apply(arith.bitcast, half.to(uint32), element=float32) for half in (bits, shift_right(bits, 32)))
    return low, high


@builtin
def pack(x: tensor, axis: int) -> Float2Tensor:
    """Pairs of neighbours along `axis`, whose length is even, of a float32 tile. Each thread holds both numbers of a pair.

    Raises the errors of `reshape` and `split`."""
    at, shape = check_axis(axis, x.rank), [int(size) for size in x.shape]
    halves = reshape(x, [*shape[:at], shape[at] // 2, 2, *shape[at + 1 :]])
    return pack2(*split(permute(halves, [*(d for d in range(halves.rank) if d != at + 1), at + 1])))


@builtin
def unpack(x: Float2Tensor, axis: int) -> tensor:
    """The tile of pairs of neighbours along `axis`: the inverse of `pack`."""
    rank = x.value.rank
    at, shape = check_axis(axis, rank), [int(size) for size in x.value.shape]
    order = [*range(at + 1), rank, *range(at + 1, rank)]
    return reshape(permute(join(*unpack2(x)), order), [size * (2 if d == at else 1) for d, size in enumerate(shape)])


@builtin
def full_like(x: Float2Tensor, fill_value: Any) -> Float2Tensor:
    """Pairs of one number, a float32 scalar or a constant, in the form of `x`."""
    one = filled(x.value, fill_value, dtype=float32)
    return pack2(one, one)


@builtin
def fma(a: Float2Tensor, b: Float2Tensor, c: Float2Tensor) -> Float2Tensor:
    """`a * b + c` of pairs, with one rounding."""
    return Float2Tensor(apply(arith.packed_fma, *unify("float2.fma", a.value, b.value, c.value, dtype=int64)))
