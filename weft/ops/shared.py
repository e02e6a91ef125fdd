"""Shared memory that the author allocates, and handles to it. All of it is gone after `lower_tiles`.

A handle is a value, what it points to is state. Forming one never fails; an access outside of the allocation does.
"""

from __future__ import annotations

from weft.ir.core import Value
from weft.ir.define import Effect, op, reads, writes
from weft.ir.types import DType, SharedType, TileType, Type, int32, tile_type
from weft.layout import DistributedLayout, SharedLayout
from weft.ops.check import integer, require, scalar, shared, tile
from weft.ops.tile import LOWER


@op("shared.alloc", stage="tile", removed_by=LOWER)
def alloc(element: DType, shape: tuple[int, ...], layout: SharedLayout, tag: int, offset: int = -1) -> Type:
    """Memory for tiles of the trailing `layout.rank` dimensions, as many as the leading ones count. Its contents are undefined.

    `tag` keeps allocations apart, so that they are never merged; `offset` (in bytes, within the block's shared memory) is
    set by `allocate_shared`."""
    require(len(shape) >= layout.rank, "a shape of at least {} dimensions, not {}", layout.rank, shape)
    return SharedType(element, shape, layout, shape[len(shape) - layout.rank :])


@op("shared.index", stage="tile", removed_by=LOWER)
def index(handle: Value, index: Value) -> Type:
    """The part at a number along the first dimension, which is none of the layout's."""
    t = shared(handle)
    scalar(index, int32)
    require(len(t.shape) > t.layout.rank, "{} has no leading dimension", t)
    return SharedType(t.element, t.shape[1:], t.layout, t.alloc_shape)


@op("shared.slice", stage="tile", removed_by=LOWER)
def slice(handle: Value, start: int, length: int, dim: int) -> Type:
    """Elements `start` to `start + length` along a dimension. In the layout's, lengths are powers of two that divide starts."""
    t = shared(handle)
    leading = len(t.shape) - t.layout.rank
    require(0 <= dim < len(t.shape), "there is no dimension {}", dim)
    aligned = length > 0 and length & (length - 1) == 0 and start % length == 0
    require(dim < leading or aligned, "a part of a tile is a power of two long and starts at a multiple of that")
    require(dim == 0 or dim >= leading or length == t.shape[dim], "tiles of a part along dimension {} of {}", dim, t)
    shape = tuple([length if d == dim else size for d, size in enumerate(t.shape)])
    return SharedType(t.element, shape, t.layout, t.alloc_shape)


@op("shared.permute", stage="tile", removed_by=LOWER)
def permute(handle: Value, order: tuple[int, ...], layout: SharedLayout) -> Type:
    """The same memory with its dimensions in another order: new dimension i is old dimension `order[i]`.

    Leading dimensions stay where they are; `layout` places the permuted tile where the old layout places the old one."""
    t = shared(handle)
    leading = len(t.shape) - t.layout.rank
    require(sorted(order) == list(range(len(t.shape))), "{} is no order of {}", order, t)
    require(order[:leading] == tuple(range(leading)), "leading dimensions stay where they are")
    alloc_shape = tuple([t.alloc_shape[d - leading] for d in order[leading:]])
    return SharedType(t.element, tuple([t.shape[d] for d in order]), layout, alloc_shape)


@op("shared.reshape", stage="tile", removed_by=LOWER)
def reshape(handle: Value, shape: tuple[int, ...], layout: SharedLayout) -> Type:
    """A whole tile's memory in another shape, elements in row-major order; `layout` places each where it was."""
    t = shared(handle)
    require(t.shape == t.alloc_shape, "only a whole tile is reshaped: {}", t)
    return SharedType(t.element, shape, layout, shape)


@op("shared.reinterpret", stage="tile", removed_by=LOWER)
def reinterpret(handle: Value, element: DType, shape: tuple[int, ...], layout: SharedLayout) -> Type:
    """The bytes from the handle on as another type. They may reach beyond the handle's own; an access then may fail."""
    shared(handle)
    require(len(shape) >= layout.rank, "a shape of at least {} dimensions, not {}", layout.rank, shape)
    return SharedType(element, shape, layout, shape[len(shape) - layout.rank :])


@op("shared.load", effects=(reads("handle", "shared"),), stage="tile", removed_by=LOWER)
def load(handle: Value, layout: DistributedLayout) -> Type:
    """The tile in shared memory, in registers."""
    t = shared(handle)
    require(len(t.shape) == t.layout.rank, "{} holds several tiles", t)
    return tile_type(t.element, t.shape, layout)


@op("shared.store", effects=(writes("handle", "shared"),), stage="tile", removed_by=LOWER)
def store(handle: Value, value: Value) -> None:
    """Write a tile. Elements that several threads hold are written once."""
    t, v = shared(handle), tile(value)
    require((t.element, t.shape) == (v.element, v.shape), "{} stored to {}", v, t)


@op("shared.gather", effects=(reads("handle", "shared"),), stage="tile", removed_by=LOWER)
def gather(handle: Value, indices: Value, axis: int) -> Type:
    """Element `indices[i]` along `axis`, and i along the others, at each coordinate i of `indices`."""
    t, i = shared(handle), tile(indices)
    integer(indices)
    _along(t, i, axis)
    return TileType(t.element, i.shape, i.linear, i.layout)


@op("shared.scatter", effects=(writes("handle", "shared"),), stage="tile", removed_by=LOWER)
def scatter(handle: Value, value: Value, indices: Value, axis: int) -> None:
    """Write `value[i]` to element `indices[i]` along `axis`, and i along the others."""
    t, v, i = shared(handle), tile(value), tile(indices)
    integer(indices)
    _along(t, i, axis)
    require(v.element == t.element, "{} stored to {}", v, t)
    require(v.shape == i.shape and v.linear == i.linear, "a value per index: {} and {}", v, i)


def _along(t: SharedType, indices: TileType, axis: int) -> None:
    require(len(t.shape) == t.layout.rank == len(indices.shape), "{} indexed by {}", t, indices)
    require(0 <= axis < len(t.shape), "there is no dimension {}", axis)
    same = all(d == axis or size == t.shape[d] for d, size in enumerate(indices.shape))
    require(same, "indices of shape {} along axis {} of {}", indices.shape, axis, t)


@op("shared.keep_alive", effects=(Effect("sync", "shared", "handle"),), stage="tile", removed_by=LOWER)
def keep_alive(handle: Value) -> None:
    """The memory is not given to another allocation before this place. No thread reads anything."""
    shared(handle)
