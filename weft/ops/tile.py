"""Making tiles and giving the same values other shapes and layouts. All of it is gone after `lower_tiles`."""

from __future__ import annotations

import math

from weft.ir.core import Effect, Value
from weft.ir.define import op
from weft.ir.types import ScalarType, Type, int32, tile_type
from weft.layout import DistributedLayout
from weft.layout.distributed import infer
from weft.ops.check import require, same_type, scalar, tile

LOWER = "lower_tiles"


@op("tile.arange", stage="tile", removed_by=LOWER)
def arange(start: int, end: int, layout: DistributedLayout) -> Type:
    """An int32 tile `[start, start + 1, ..., end - 1]`; its length is a power of two."""
    require(end > start and (end - start) & (end - start - 1) == 0, "arange needs a power-of-two length")
    return tile_type(int32, (end - start,), layout)


@op("tile.splat", stage="tile", removed_by=LOWER)
def splat(x: Value, shape: tuple[int, ...], layout: DistributedLayout) -> Type:
    """A tile whose elements are all equal to the scalar `x`."""
    scalar(x)
    return tile_type(x.type.element, shape, layout)


@op("tile.expand_dims", stage="tile", removed_by=LOWER)
def expand_dims(x: Value, axis: int) -> Type:
    """Insert an axis of length one. A tile in `SliceLayout(axis, parent)` gets layout `parent`."""
    t = tile(x)
    shape = (*t.shape[:axis], 1, *t.shape[axis:])
    return tile_type(t.element, shape, infer.expand_dims(t.layout, t.shape, axis))


@op("tile.broadcast", stage="tile", removed_by=LOWER)
def broadcast(x: Value, shape: tuple[int, ...]) -> Type:
    """Repeat along axes of length one. The layout stays the same object, unless it is specific to one shape."""
    t = tile(x)
    require(len(shape) == len(t.shape), "broadcast cannot change the rank of {}", t.shape)
    require(
        all(a in (1, b) for a, b in zip(t.shape, shape, strict=True)), "{} does not broadcast to {}", t.shape, shape
    )
    return tile_type(t.element, shape, infer.broadcast(t.layout, t.shape, shape))


@op("tile.reshape", stage="tile", removed_by=LOWER)
def reshape(x: Value, shape: tuple[int, ...]) -> Type:
    """The same elements in row-major order with another shape; no data moves, and the layout is derived from the old one."""
    t = tile(x)
    require(math.prod(shape) == math.prod(t.shape), "{} and {} differ in size", t.shape, shape)
    return tile_type(t.element, shape, infer.reshape(t.layout, t.shape, shape))


@op("tile.permute", stage="tile", removed_by=LOWER)
def permute(x: Value, order: tuple[int, ...]) -> Type:
    """Axes in another order: axis `i` of the result is axis `order[i]` of `x`; no data moves."""
    t = tile(x)
    require(sorted(order) == list(range(len(t.shape))), "{} is no permutation of {} axes", order, len(t.shape))
    return tile_type(t.element, tuple(t.shape[i] for i in order), infer.permute(t.layout, t.shape, order))


@op("tile.join", stage="tile", removed_by=LOWER)
def join(lhs: Value, rhs: Value) -> Type:
    """Stack two tiles along a new last axis of length two, which lies in registers."""
    t = tile(lhs)
    same_type(lhs, rhs)
    return tile_type(t.element, (*t.shape, 2), infer.join(t.layout, t.shape))


@op("tile.split", stage="tile", removed_by=LOWER)
def split(x: Value) -> tuple[Type, Type]:
    """Undo `join`: the two halves along the last axis, which has length two and lies in registers."""
    t = tile(x)
    require(t.shape[-1] == 2, "split needs a last axis of length 2, not {}", t.shape)
    half = tile_type(t.element, t.shape[:-1], infer.split(t.layout, t.shape))
    return half, half


@op("tile.convert", stage="tile", removed_by=LOWER)
def convert(x: Value, layout: DistributedLayout) -> Type:
    """The same tile in another layout; `weft.layout.convert` plans how data moves."""
    t = tile(x)
    return tile_type(t.element, t.shape, layout)


@op("tile.set_layout", stage="tile", removed_by="resolve_layouts")
def set_layout(x: Value, layout: DistributedLayout) -> Type:
    """Set the layout of a tile whose layout is to be inferred; no data moves."""
    t = tile(x)
    return tile_type(t.element, t.shape, layout)


@op("tile.extract", stage="tile", removed_by=LOWER)
def extract(x: Value) -> Type:
    """The only element of a tile of size one, as a scalar."""
    t = tile(x)
    require(math.prod(t.shape) == 1, "only a tile of one element is a scalar, not {}", t.shape)
    return ScalarType(t.element)


@op("value.hint", elementwise=True)
def hint(
    x: Value, divisible: tuple[int, ...] = (), contiguous: tuple[int, ...] = (), constant: tuple[int, ...] = ()
) -> Type:
    """The same value with the author's hints per axis: values are multiples of `divisible`, runs of `contiguous` elements
    increase by one, runs of `constant` elements are equal. A scalar has one axis. The simulator checks hints."""
    return x.type


@op("value.assume", effects=(Effect("read", "io"),))
def assume(condition: Value) -> None:
    """The author's assumption that a scalar condition holds; the simulator checks it."""
    scalar(condition)
