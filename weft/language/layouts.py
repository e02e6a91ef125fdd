"""Layouts in kernels: the public names of the classes, and functions that convert or inspect a tile's layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import TileType
from weft.language import advice
from weft.language.broadcast import conversion_cost
from weft.language.context import current
from weft.language.marks import anywhere, builtin
from weft.language.runtime_value import describe, name_of
from weft.language.tensor import apply, tensor
from weft.layout import (
    AutoLayout,
    BlockedLayout,
    CoalescedLayout,
    DistributedLayout,
    DistributedLinearLayout,
    DotOperandLayout,
    NVMMADistributedLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLayout,
    SharedLinearLayout,
    SliceLayout,
    SwizzledSharedLayout,
    check_num_warps,
    check_tile_shape,
    in_cluster,
)
from weft.layout.convert.plans import is_trivial, plan_conversion
from weft.layout.distributed import infer
from weft.layout.distributed.layouts import check_slices
from weft.ops import tile


@builtin
def convert_layout(value: tensor, layout: DistributedLayout, assert_trivial: bool = False) -> tensor:
    """Convert a tile to another layout, by register moves, shuffles or through shared memory, as `weft.layout.convert` plans.

    `assert_trivial` requires a free conversion: the layouts are equal or differ in the order of registers only. Raises
    LayoutError if the layout does not fit the tile, and CompilationError (tile-not-trivial), which shows the cost.
    """
    check_tile("convert_layout", value)
    layout = check_layout(layout, tuple(value.shape))
    if not assert_trivial:
        return apply(tile.convert, value, layout=layout)
    if not value.tile.resolved:
        return apply(tile.set_layout, value, layout=layout)
    _check_trivial(value, layout)
    return apply(tile.convert, value, layout=layout)


@builtin
def set_auto_layout(value: tensor, layout: DistributedLayout) -> tensor:
    """Set the layout of a tile in `AutoLayout` or `CoalescedLayout`; no data moves. Raises tile-layout-known for other
    layouts."""
    check_tile("set_auto_layout", value)
    layout = check_layout(layout, tuple(value.shape))
    if value.tile.resolved:
        raise fail(errors.TILE_LAYOUT_KNOWN, value=name_of(value), layout=value.layout)
    return apply(tile.set_layout, value, layout=layout)


@anywhere
def to_linear_layout(layout: Any, shape: Sequence[int]) -> Any:
    """A layout of a tile of this shape as a `DistributedLinearLayout`, or for a shared layout a `SharedLinearLayout`.

    Also callable on the host. Raises LayoutError if the layout does not fit the shape.
    """
    sizes = tuple(shape)
    if isinstance(layout, SharedLayout):
        return _shared_bases(layout, sizes)
    if not isinstance(layout, DistributedLayout):
        raise fail(errors.TILE_NOT_A_LAYOUT, got=repr(layout))
    return infer.as_spelling(layout.to_linear(sizes), sizes)


def check_layout(layout: object, shape: tuple[int, ...]) -> DistributedLayout:
    """Check a layout against a tile's shape and the kernel's numbers of warps and CTAs, and return it.

    In a cluster, a layout without a CGA part replicates the tile in each CTA."""
    if not isinstance(layout, DistributedLayout):
        raise fail(errors.TILE_NOT_A_LAYOUT, got=repr(layout))
    check_tile_shape(shape)
    if layout.is_resolved:
        layout.to_linear(shape)
        check_num_warps(layout, current().num_warps, current().partition)
    else:
        check_slices(layout, len(shape))
    return in_cluster(layout, current().num_ctas)


def check_tile(what: str, value: object) -> None:
    """Reject anything but a tile (language-tile-needed)."""
    if not isinstance(value, tensor) or not isinstance(value.handle.type, TileType):
        raise fail(errors.TILE_NEEDED, what=what, got=describe(value), more=advice.in_warps(what, value))


def _check_trivial(value: tensor, layout: DistributedLayout) -> None:
    shape = tuple(value.shape)
    if not layout.is_resolved:
        return
    plan = plan_conversion(value.layout.to_linear(shape), layout.to_linear(shape), value.element.bits)
    if not is_trivial(plan):
        cost = conversion_cost(value.element, shape, value.layout, layout)
        raise fail(errors.TILE_NOT_TRIVIAL, value=name_of(value), source=value.layout, target=layout, cost=cost)


def _shared_bases(layout: SharedLayout, shape: tuple[int, ...]) -> SharedLinearLayout:
    linear = layout.to_linear(shape)
    return SharedLinearLayout(linear.bases("offset"), linear.bases("block"))


__all__ = [
    "AutoLayout", "BlockedLayout", "CoalescedLayout", "DistributedLayout", "DistributedLinearLayout", "DotOperandLayout",
    "NVMMADistributedLayout", "NVMMASharedLayout", "PaddedSharedLayout", "SharedLayout", "SharedLinearLayout", "SliceLayout",
    "SwizzledSharedLayout", "check_layout", "check_tile", "convert_layout", "set_auto_layout", "to_linear_layout",
]  # fmt: skip
