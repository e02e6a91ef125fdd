"""Sorting along an axis, and the largest or smallest elements: bitonic networks, whose steps `tile.sort_step` performs.

Floats are sorted as integers of the same order. Selecting k of n elements sorts groups of k in alternating directions, then
keeps the better elements of each pair of groups until one is left (Shanbhag, Pirahandeh and Madden, "Efficient Top-K Query
Processing on Massively Parallel Hardware").
"""

from __future__ import annotations

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import DType, int8, int16, int32, int64
from weft.language import logic
from weft.language.arith import maximum, minimum
from weft.language.casts import cast
from weft.language.creation import check_int
from weft.language.layouts import check_tile
from weft.language.marks import builtin
from weft.language.promote import convert
from weft.language.reduction import reduce_one
from weft.language.runtime_value import describe, name_of
from weft.language.shape import check_axis, reshape
from weft.language.tensor import apply, tensor
from weft.layout.linear.f2 import is_power_of_two
from weft.ops import tile

_INTEGERS = {8: int8, 16: int16, 32: int32, 64: int64}


@builtin
def sort(x: tensor, dim: int | None = None, descending: bool = False) -> tensor:
    """A tile with its elements in order along `dim` (the last axis if None); shape and layout are unchanged.

    NaN of either sign counts as the largest number and comes out as the canonical NaN; -0 comes before +0. To sort pairs, pack
    them into an int64 with the key in the upper half. Raises tile-sort-end for a length that is no power of two.
    """
    check_tile("sort", x)
    axis = _axis("sort", x, dim)
    return _restored(_steps(_keys(x), axis, _log2(x.shape[axis]), bool(descending)), x.dtype)


@builtin
def topk(x: tensor, k: int, dim: int | None = None, descending: bool = True) -> tensor:
    """The `k` largest elements along `dim` (the last axis if None) in descending order; unless `descending`, the smallest ones
    in ascending order. `k` is a power of two and at most the axis's length (tile-topk),
    which is one too (tile-sort-end).

    The result has length `k` there, and the layout of a reduction. The order is that of `sort`.
    """
    check_tile("topk", x)
    axis = _axis("topk", x, dim)
    count = check_int("topk", k)
    if not 0 < count <= x.shape[axis] or count & (count - 1):
        raise fail(errors.TILE_TOPK, k=count, value=name_of(x), axis=axis, size=x.shape[axis])
    return _restored(_selected(_keys(x), axis, count, bool(descending)), x.dtype)


@builtin
def bitonic_merge(x: tensor, dim: int | None = None, descending: bool = False) -> tensor:
    """A tile in order along `dim` (the last axis if None) whose elements there rise and then fall, or fall and then rise: such
    as the larger ones of two sorted tiles of opposite directions. The order is that of `sort`, for fewer steps."""
    check_tile("bitonic_merge", x)
    axis = _axis("bitonic_merge", x, dim)
    return _restored(_merged(_keys(x), axis, _log2(x.shape[axis]), bool(descending)), x.dtype)


def _axis(what: str, x: tensor, dim: int | None) -> int:
    """The axis, whose length is a power of two (tile-sort-end)."""
    axis = check_axis(-1 if dim is None else dim, x.rank)
    if not is_power_of_two(x.shape[axis]):
        raise fail(errors.TILE_SORT_END, what=what, value=name_of(x), axis=axis, size=x.shape[axis])
    return axis


def _selected(x: tensor, axis: int, count: int, descending: bool) -> tensor:
    better = maximum if descending else minimum
    width, n = _log2(count), x.shape[axis]
    if width == 0:
        return reshape(
            reduce_one(x, axis, better, keep_dims=True), [1 if d == axis else s for d, s in enumerate(x.shape)]
        )
    for stage in range(1, width + 1):
        x = _merged(x, axis, stage, descending)
    while n > count:
        before, after = list(x.shape[:axis]), list(x.shape[axis + 1 :])
        pairs = reshape(x, [*before, n // (2 * count), 2, count, *after])
        n //= 2
        x = reshape(reduce_one(pairs, axis + 1, better), [*before, n, *after])
        x = _merged(x, axis, width, descending)
    return x


def _steps(x: tensor, axis: int, stages: int, descending: bool) -> tensor:
    for stage in range(1, stages + 1):
        x = _merged(x, axis, stage, descending)
    return x


def _merged(x: tensor, axis: int, stage: int, descending: bool) -> tensor:
    """Sort bitonic groups of 2 ** stage elements, every other one in the other direction."""
    flip = 1 << stage if 1 << stage < x.shape[axis] else 0
    for bit in reversed(range(stage)):
        x = apply(tile.sort_step, x, axis=axis, stride=1 << bit, flip=flip, descending=descending)
    return x


def _keys(x: tensor) -> tensor:
    """Integers in the order of the elements, of at least 32 bits."""
    dtype: DType = x.dtype
    if dtype.is_floating():
        bits = _ordered(cast(x, _INTEGERS[dtype.bits], bitcast=True))
        x = logic.where(logic.compare("eq", x, x), bits, (1 << dtype.bits - 1) - 1)
    elif not dtype.is_int() or dtype.is_bool():
        raise fail(errors.INTEGER_NEEDED, what="sort", got=describe(x))
    return convert(x, int32) if x.dtype.bits < 32 else x


def _ordered(bits: tensor) -> tensor:
    """The bits of floats as integers of the same order, and back: those of negative numbers are inverted below the sign."""
    width = bits.dtype.bits
    return logic.bit_xor(bits, logic.bit_and(logic.shift_right(bits, width - 1), (1 << width - 1) - 1))


def _restored(x: tensor, dtype: DType) -> tensor:
    if dtype.is_floating():
        return cast(_ordered(convert(x, _INTEGERS[dtype.bits])), dtype, bitcast=True)
    return convert(x, dtype)


def _log2(n: int) -> int:
    return n.bit_length() - 1
