"""Views in global memory as tiles: the addresses of a view's elements, and the mask of those in bounds.

    tile = gl.load(view.tile[128, 64](i, j))         # emits a tile of addresses, as written by hand, and a load
    gl.store(out.tile[128, 64](i, j), tile)

The address of an element is the address of the view's first element plus an offset along each axis, in 32 bits where they
suffice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from weft.errors import fail
from weft.errors import views as errors
from weft.ir.types import int32, int64
from weft.language import arith, logic
from weft.language.context import current
from weft.language.creation import arange
from weft.language.layouts import check_layout
from weft.language.places import ACCESS_BYTES
from weft.language.promote import convert
from weft.language.runtime_value import name_of
from weft.language.shape import expand_dims
from weft.language.tensor import apply, tensor
from weft.layout import AutoLayout, CoalescedLayout, DistributedLayout, in_cluster
from weft.layout.distributed.by_strides import by_strides
from weft.layout.linear.f2 import is_power_of_two
from weft.ops import tile
from weft.views import AddressSpace, Index, LayoutTensor
from weft.views.modes import Axis, axes_of, is_wide, merged

Addresses: TypeAlias = "tensor | LayoutTensor"
"""The addresses of a load or store: a scalar or a tile of pointers, or a view in global memory."""
_DEFAULT_SIZE = 64
_INSTEAD = {
    AddressSpace.SHARED: "load from the buffer itself, smem.load(layout), and store to it; as a view it is for threads",
    AddressSpace.LOCAL: "gl.from_fragment(view, shape, layout) makes a tile of what threads hold, and gl.fragment(tile) takes "
    "one apart",
}


def addresses(what: str, view: LayoutTensor, layout: DistributedLayout | None) -> tuple[tensor, tensor | None]:
    """The addresses of a view's elements as a tile, and the mask of elements in bounds of a masked view (None: all).

    The default layout is the one with the widest memory accesses. Raises CompilationError: bridge-space, bridge-vectors,
    bridge-sizes; LayoutError if the layout does not fit.
    """
    shape = _tile_shape(what, view)
    axes = [merged(axis) for axis in axes_of(view)]
    chosen = _best_layout(view, axes) if layout is None else check_layout(layout, shape)
    offsets: tensor | None = None
    for axis, modes in enumerate(axes):
        along = _at(_offsets(modes, is_wide(view.layout, view.sizes)), axis, len(axes))
        offsets = along if offsets is None else arith.add(offsets, along)
    assert offsets is not None
    return _in_layout(_from_first(view, offsets), chosen), _inside(view, shape)


def check_stored(view: LayoutTensor, value: Any) -> DistributedLayout | None:
    """The layout of a tile that is stored to a view; None for a scalar. Raises bridge-shapes."""
    if not isinstance(value, tensor) or value.is_scalar:
        return None
    shape = list(view.shape)
    if value.shape != shape:
        example = ", ".join(map(str, value.shape))
        raise fail(
            errors.BRIDGE_SHAPES, value=name_of(value), view=view.history, shape=shape, tile=example,
            coordinates=_coordinates(value.rank),
        )  # fmt: skip
    return value.layout


def both(one: tensor | None, other: Any) -> Any:
    """The conjunction of two masks; None is all true."""
    if one is None or other is None or other is True:
        return other if one is None else one
    return logic.bit_and(one, other)


def _tile_shape(what: str, view: LayoutTensor) -> tuple[int, ...]:
    if view.address_space is not AddressSpace.GLOBAL:
        instead = _INSTEAD.get(view.address_space, "pass the view as an argument of the kernel")
        raise fail(errors.BRIDGE_SPACE, what=what, view=view.history, space=view.address_space.value, instead=instead)
    if view.element_size != 1:
        raise fail(errors.BRIDGE_VECTORS, what=what, view=view.history, width=view.element_size)
    shape = view.shape
    if not all(isinstance(size, int) and size > 0 and is_power_of_two(size) for size in shape):
        raise fail(
            errors.BRIDGE_SIZES, what=what, view=view.history, shape=list(shape), tile=", ".join(map(str, _sizes(shape))),
            coordinates=_coordinates(len(shape)),
        )  # fmt: skip
    return shape


def _sizes(shape: Sequence[Any]) -> list[int]:
    """A suggested tile shape: powers of two are kept, other sizes are rounded down."""
    known = [size if isinstance(size, int) and size > 0 else _DEFAULT_SIZE for size in shape]
    return [size if is_power_of_two(size) else min(1 << size.bit_length() - 1, _DEFAULT_SIZE) for size in known]


def _coordinates(rank: int) -> str:
    return ", ".join("ijklmnpq"[:rank])


def _best_layout(view: LayoutTensor, axes: Sequence[Axis]) -> DistributedLayout:
    """`CoalescedLayout` if the tile has a contiguous axis or its strides are unknown: the pass that resolves it also knows the
    alignment. Other tiles get a layout in the order of their strides."""
    steps = [mode for axis in axes for mode in axis if not isinstance(mode.size, int) or mode.size > 1]
    plain = all(len(axis) == 1 for axis in axes)
    strides = [mode.stride if isinstance(mode.stride, int) else None for mode in steps]
    if plain and (1 in strides or all(stride is None for stride in strides)):
        return CoalescedLayout()
    modes = [[(mode.size, mode.stride if isinstance(mode.stride, int) else None) for mode in axis] for axis in axes]
    context = current()
    made = by_strides(modes, view.dtype.itemsize, context.num_warps, ACCESS_BYTES)
    return in_cluster(made, context.num_ctas)


def _offsets(modes: Axis, wide: bool) -> tensor:
    """The offsets along an axis, in elements: a one-dimensional tile."""
    index = arange(0, math.prod(mode.size for mode in modes))
    total: tensor | None = None
    for mode in modes:
        last = mode is modes[-1]
        step = index if last else arith.mod(index, mode.size)
        part = arith.mul(convert(step, int64) if wide else step, mode.stride)
        total = part if total is None else arith.add(total, part)
        index = index if last else arith.floordiv(index, mode.size)
    assert total is not None
    return total


def _from_first(view: LayoutTensor, offsets: tensor) -> tensor:
    """The addresses at these offsets from the view's first element.

    If the offset of the first element is 32-bit, all offsets of the memory are. One 32-bit addition then replaces a 64-bit
    one."""
    start = view.offset
    if isinstance(start, tensor) and start.element.bits <= int32.bits and offsets.element == int32:
        return arith.add(view.storage.address(0), arith.add(start, offsets))
    return arith.add(view.ptr, offsets)


def _at(x: tensor, axis: int, rank: int) -> tensor:
    """A one-dimensional tile along one axis of a tile of `rank` dimensions, of length 1 along the others."""
    others = [each for each in range(rank) if each != axis]
    return expand_dims(x, others) if others else x


def _inside(view: LayoutTensor, shape: Sequence[int]) -> tensor | None:
    mask: tensor | None = None
    for axis, limit in enumerate(view.limits or ()):
        if limit is not None:
            index = _at(arange(0, shape[axis]), axis, len(shape))
            mask = both(mask, logic.compare("lt", index, _narrow(view, limit, shape[axis])))
    return mask


def _narrow(view: LayoutTensor, limit: Index, size: int) -> Index:
    """A limit clamped to 32 bits, so that the comparison of each element is 32-bit."""
    if isinstance(limit, int) or limit.dtype.bits <= int32.bits:
        return limit
    return convert(view.storage.clamp(limit, 0, size), int32)


def _in_layout(x: tensor, layout: DistributedLayout) -> tensor:
    return x if isinstance(layout, AutoLayout) else apply(tile.set_layout, x, layout=layout)
