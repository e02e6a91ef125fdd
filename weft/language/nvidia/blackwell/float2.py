"""Pairs of float32 as values: `x = float2.pack(t, axis=1)`, `y = float2.fma(x, s, b)`, and the tile `float2.unpack(y, axis=1)`.

Each operation is one of `add2`, `sub2`, `mul2` or `fma2`, which take tiles as they are and need no packing. A pair is a last
axis of two elements.
"""

from __future__ import annotations

from typing import Any

from weft.ir.types import float32
from weft.language.aggregate import aggregate
from weft.language.creation import full_like as filled
from weft.language.marks import builtin
from weft.language.nvidia.blackwell.packed import add2, fma2, mul2, sub2
from weft.language.reduction import sum as total
from weft.language.shape import check_axis, join, permute, reshape, split
from weft.language.tensor import tensor

__all__ = ["Float2Tensor", "fma", "full_like", "pack", "pack2", "unpack", "unpack2"]


@aggregate
class Float2Tensor:
    """Pairs of float32, with the operators `+`, `-` and `*` on other pairs. Created by `pack` and `pack2`.

    Its `value` is a float32 tile whose last axis has the two numbers of a pair."""

    value: tensor

    @builtin
    def __add__(self, rhs: Any) -> Any:
        return Float2Tensor(add2(self.value, rhs.value, float32)) if isinstance(rhs, Float2Tensor) else NotImplemented

    @builtin
    def __sub__(self, rhs: Any) -> Any:
        return Float2Tensor(sub2(self.value, rhs.value, float32)) if isinstance(rhs, Float2Tensor) else NotImplemented

    @builtin
    def __mul__(self, rhs: Any) -> Any:
        return Float2Tensor(mul2(self.value, rhs.value, float32)) if isinstance(rhs, Float2Tensor) else NotImplemented

    @builtin
    def sum(self, axis: int) -> Any:
        """The sums along an axis of the pairs, which are pairs themselves."""
        return Float2Tensor(total(self.value, check_axis(axis, self.value.rank - 1)))


@builtin
def pack2(x0: tensor, x1: tensor) -> Float2Tensor:
    """Pairs of the elements of two float32 tiles of one shape and layout."""
    return Float2Tensor(join(x0, x1))


@builtin
def unpack2(x: Float2Tensor) -> tuple[tensor, tensor]:
    """The two tiles of pairs: the inverse of `pack2`."""
    return split(x.value)


@builtin
def pack(x: tensor, axis: int) -> Float2Tensor:
    """Pairs of neighbours along `axis`, whose length is even, of a float32 tile. Raises the errors of `reshape`."""
    at, shape = check_axis(axis, x.rank), [int(size) for size in x.shape]
    halves = reshape(x, [*shape[:at], shape[at] // 2, 2, *shape[at + 1 :]])
    return Float2Tensor(permute(halves, [*(d for d in range(halves.rank) if d != at + 1), at + 1]))


@builtin
def unpack(x: Float2Tensor, axis: int) -> tensor:
    """The tile of pairs of neighbours along `axis`: the inverse of `pack`."""
    value = x.value
    rank = value.rank - 1
    at, shape = check_axis(axis, rank), [int(size) for size in value.shape[:rank]]
    order = [*range(at + 1), rank, *range(at + 1, rank)]
    return reshape(permute(value, order), [size * (2 if d == at else 1) for d, size in enumerate(shape)])


@builtin
def full_like(x: Float2Tensor, fill_value: Any) -> Float2Tensor:
    """Pairs of one number, a float32 scalar or a constant, in the form of `x`."""
    return Float2Tensor(filled(x.value, fill_value))


@builtin
def fma(a: Float2Tensor, b: Float2Tensor, c: Float2Tensor) -> Float2Tensor:
    """`a * b + c` of pairs, with one rounding."""
    return Float2Tensor(fma2(a.value, b.value, c.value, float32))
