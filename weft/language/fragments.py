"""A tile's registers as a thread-private view, and back.

part = gl.fragment(tile)                       # a weft.LayoutTensor over the thread's registers
part[0, 1] = part[0, 0] + gl.lane_id()
tile = gl.from_fragment(part, [128, 64], layout)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from weft.errors import fail
from weft.errors import views as errors
from weft.language.broadcast import VectorForm, fit
from weft.language.creation import check_shape
from weft.language.layouts import check_layout, check_tile
from weft.language.marks import builtin
from weft.language.promote import number_dtype
from weft.language.runtime_value import describe, name_of
from weft.language.storages import allocate_memory
from weft.language.tensor import apply, tensor
from weft.layout import DistributedLayout, Layout
from weft.layout.distributed.register_view import register_view
from weft.ops import regs, thread
from weft.views import AddressSpace, LayoutTensor, Places
from weft.views.modes import Axis, axes_of, extent, offset_along


@builtin
def fragment(x: tensor) -> LayoutTensor:
    """A copy of each thread's fragment of a tile, as a view of its registers.

    The view has the tile's dimensions. Along each dimension it has the thread's elements in order; they are adjacent in the
    view, however far apart they are in the tile. An element that a thread holds twice occurs once. If the registers of a layout
    do not factor into dimensions (possible with `DistributedLinearLayout`), the view has one axis, the registers in order.
    Compile-time indices cost nothing. Raises CompilationError: language-tile-needed, bridge-fragment-open.
    """
    check_tile("fragment", x)
    dtype, type = number_dtype("fragment", x), x.tile
    if type.linear is None:
        raise fail(errors.BRIDGE_FRAGMENT_OPEN, value=name_of(x), layout=x.layout)
    known = register_view(type.linear)
    held = _picked(apply(thread.fragment, x), known.first)
    storage = allocate_memory(dtype, len(known.first), AddressSpace.LOCAL)
    storage.store(0, Places(tuple(range(len(known.first)))), held, None)
    return LayoutTensor(storage, Layout.row_major(*known.shape), name=f"fragment({x.handle.name or '...'})")


@builtin
def from_fragment(view: LayoutTensor, shape: Sequence[int], layout: DistributedLayout) -> tensor:
    """The tile of a shape and layout whose fragments are the threads' views: the inverse of `fragment`.

    Threads that hold the same element must hold the same value; the simulator checks it. Raises CompilationError
    (bridge-fragment-view), and LayoutError if the view does not match a thread's fragment (bridge-fragment-shape) or the layout
    does not fit the shape.
    """
    _check_view(view)
    sizes = check_shape("from_fragment", shape)
    layout = check_layout(layout, sizes)
    if not layout.is_resolved:
        raise fail(errors.BRIDGE_FRAGMENT_OPEN, value=f"a tile {list(sizes)}", layout=layout)
    known = register_view(layout.to_linear(sizes))
    axes = axes_of(view)
    if not _static(axes) or view.element_size != 1 or tuple(map(extent, axes)) != known.shape:
        raise fail(
            errors.BRIDGE_FRAGMENT_SHAPE, view=view.history, got=view.layout, shape=list(sizes), layout=layout,
            want=f"{' x '.join(map(str, known.shape))} elements",
        )  # fmt: skip
    along = [[offset_along(axis, i) for i in range(size)] for axis, size in zip(axes, known.shape, strict=True)]
    places = Places(tuple(map(sum, product(*along))))
    held = fit(view.storage.load(view.offset, places, None), VectorForm(places.count))
    return apply(thread.assemble, _picked(held, known.number), shape=sizes, layout=layout)


def _check_view(view: object) -> None:
    if not isinstance(view, LayoutTensor):
        raise fail(errors.BRIDGE_FRAGMENT_VIEW, got=describe(view))


def _picked(registers: tensor, table: Sequence[int]) -> tensor:
    return (
        registers if tuple(table) == tuple(range(len(registers))) else apply(regs.gather, registers, table=tuple(table))
    )


def _static(axes: Sequence[Axis]) -> bool:
    numbers: list[Any] = [number for axis in axes for mode in axis for number in (mode.size, mode.stride)]
    return all(isinstance(number, int) for number in numbers)
