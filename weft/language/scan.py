"""Scans, histograms, gathers and element-wise functions."""

from __future__ import annotations

from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import DType, ScalarType, int1
from weft.language import shape
from weft.language.arith import add, mul
from weft.language.broadcast import common_form, fit
from weft.language.context import current
from weft.language.creation import check_int
from weft.language.layouts import check_layout, check_tile
from weft.language.logic import truth
from weft.language.marks import builtin
from weft.language.promote import convert, to_tensor
from weft.language.reduction import callable_of, combine_region, parts_of, sum_dtype
from weft.language.runtime_value import describe, name_of
from weft.language.tensor import apply, apply_many, tensor
from weft.layout import AutoLayout, DistributedLayout
from weft.ops import control, elements, tile


@builtin
def associative_scan(input: Any, axis: int, combine_fn: Any, reverse: bool = False) -> Any:
    """Inclusive scan of one tile, or of a tuple of tiles jointly, along `axis`; shape and layout are unchanged.

    `combine_fn` is as for `reduce`. With `reverse` the scan runs from the end.
    """
    single = isinstance(input, tensor)
    results = _scan((input,) if single else tuple(input), axis, callable_of("associative_scan", combine_fn), reverse)
    return results[0] if single else results


@builtin
def cumsum(input: tensor, axis: int = 0, reverse: bool = False, dtype: DType | None = None) -> tensor:
    """Prefix sums along an axis, in `dtype`; integers narrower than 32 bits are summed in 32 bits by default."""
    check_tile("cumsum", input)
    return _scan((convert(input, sum_dtype(input, dtype)),), axis, add, reverse)[0]


@builtin
def cumprod(input: tensor, axis: int = 0, reverse: bool = False, dtype: DType | None = None) -> tensor:
    """Prefix products along an axis, in the type that `cumsum` would use."""
    check_tile("cumprod", input)
    return _scan((convert(input, sum_dtype(input, dtype)),), axis, mul, reverse)[0]


@builtin
def histogram(input: tensor, num_bins: int, mask: Any = None, layout: DistributedLayout | None = None) -> tensor:
    """int32 tile of `num_bins` counts of the values 0 ... num_bins - 1 in a one-dimensional integer tile.

    Elements for which `mask` is false, and values outside of the bins, are not counted. `layout` is the result's.
    """
    check_tile("histogram", input)
    if input.rank != 1 or not input.dtype.is_int():
        raise fail(errors.TILE_HISTOGRAM, value=name_of(input))
    bins = check_int("histogram", num_bins)
    result = check_layout(AutoLayout() if layout is None else layout, (bins,))
    form = common_form("histogram", (input, mask))
    kept = None if mask is None else fit(truth(mask), form)
    return apply(tile.histogram, fit(input, form), kept, bins=bins, layout=result)


@builtin
def gather(src: tensor, index: tensor, axis: int) -> tensor:
    """`out[..., i, ...] = src[..., index[..., i, ...], ...]` along `axis`, in the shape and layout of `index`.

    The other axes have equal lengths (tile-gather-shape), and the index has an integer type.
    """
    check_tile("gather", src)
    check_tile("gather", index)
    if not index.dtype.is_int() or index.dtype == int1:
        raise fail(errors.INTEGER_NEEDED, what="gather's index", got=describe(index))
    position = shape.check_axis(axis, src.rank)
    others = [(a, b) for d, (a, b) in enumerate(zip(src.shape, index.shape, strict=False)) if d != position]
    if src.rank != index.rank or any(a != b for a, b in others):
        raise fail(errors.TILE_GATHER_SHAPE, axis=position, src=name_of(src), index=name_of(index))
    return apply(tile.gather, src, index, axis=position)


@builtin
def map_elementwise(scalar_fn: Any, *args: Any, pack: int = 1) -> Any:
    """Apply a `@jit` function of scalars, which may branch, to each element of the broadcast operands.

    The function takes `pack` scalars per operand, operand by operand, and returns `pack` scalars per result. One result is
    returned as a tile, several as a tuple.
    """
    count = check_int("map_elementwise", pack)
    if count < 1 or not args:
        raise fail(errors.TILE_MAP_PACK, pack=count, operands=len(args))
    values = [to_tensor(x) for x in args]
    form = common_form("map_elementwise", values)
    tiles = [fit(x, form) for x in values]
    call = callable_of("map_elementwise", scalar_fn)
    builder = current().builder
    with builder.region([ScalarType(x.element) for x in tiles for _ in range(count)]) as body:
        outputs = [to_tensor(x) for x in parts_of(call(*map(tensor, body.args)))]
        _check_outputs(outputs, count)
        builder.emit(control.yield_, *(x.handle for x in outputs))
    results = apply_many(elements.map_elements, tiles, (body.done,), pack=count)
    return results[0] if len(results) == 1 else results


@builtin
def dot_fma(a: tensor, b: tensor, acc: tensor) -> tensor:
    """`acc + a @ b` with fused multiply-adds in each thread, in increasing order of k.

    `acc` is `[M, N]` in a layout L, `a` is `[M, K]` in `DotOperandLayout(0, L, 0)` and `b` is `[K, N]` in
    `DotOperandLayout(1, L, 0)`, all of one float type. With a leading dimension of the same size in all three, each index along
    it is a dot of its own. Raises tile-dot-shape, tile-dot-type.
    """
    for x in (a, b, acc):
        check_tile("dot_fma", x)
    batch, *sides = list(acc.shape[:-2]), *acc.shape[-2:]
    k = a.shape[-1]
    if acc.rank not in (2, 3) or [*a.shape] != [*batch, sides[0], k] or [*b.shape] != [*batch, k, sides[1]]:
        raise fail(errors.TILE_DOT_SHAPE, a=name_of(a), b=name_of(b), acc=name_of(acc))
    if not a.element == b.element == acc.element or not acc.element.is_floating() or acc.element.bits < 16:
        raise fail(errors.TILE_DOT_TYPE, a=a.dtype.name, b=b.dtype.name, acc=acc.dtype.name)
    return apply(tile.dot_fma, a, b, acc)


def _scan(inputs: tuple[tensor, ...], axis: int, combine: Any, reverse: bool) -> tuple[tensor, ...]:
    for x in inputs:
        check_tile("associative_scan", x)
    form = common_form("associative_scan", inputs)
    tiles = tuple(fit(x, form) for x in inputs)
    position = shape.check_axis(axis, tiles[0].rank)
    region = combine_region("associative_scan", tiles, combine)
    return apply_many(tile.scan, tiles, (region,), axis=position, reverse=bool(reverse))


def _check_outputs(outputs: list[tensor], pack: int) -> None:
    groups = [outputs[i : i + pack] for i in range(0, len(outputs), pack)]
    alike = all(len(group) == pack and len({x.element for x in group}) == 1 for group in groups)
    if not outputs or not alike or not all(x.is_scalar for x in outputs):
        raise fail(errors.TILE_MAP_RESULT, pack=pack, got=", ".join(describe(x) for x in outputs) or "nothing")
