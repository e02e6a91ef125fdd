"""A tile's registers as a view of each thread's own, and back.

    part = gl.fragment(tile)                       # a weft.LayoutTensor over the thread's registers
    part[0, 1] = part[0, 0] + gl.lane_id()
    tile = gl.from_fragment(part, [128, 64], layout)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import bridge as errors
from weft.errors import fail
from weft.ir.types import RegsType
from weft.language.broadcast import VectorForm, fit
from weft.language.creation import check_shape
from weft.language.layouts import check_layout, check_tile
from weft.language.marks import builtin
from weft.language.promote import number_dtype
from weft.language.runtime_value import describe, name_of
from weft.language.storages import allocate_memory
from weft.language.tensor import apply, tensor
from weft.layout import DistributedLayout
from weft.layout.register_view import register_view
from weft.ops import regs, thread
from weft.views import AddressSpace, LayoutTensor, Places
from weft.views.modes import Axis, axes_of, extent, offset_along


@builtin
def fragment(x: tensor) -> LayoutTensor:
    """A copy of what each thread holds of a tile, as a view of its own registers.

    The view has the tile's dimensions, and along each of them as many elements as the thread's registers count up there: mode
    by mode where other registers lie between, as in `NVMMADistributedLayout`. Elements that a thread holds twice stand there
    once. Where registers do not count along dimensions the view has one, of all registers in order.

    Indices known at compile time cost nothing. Raises CompilationError: language-tile-needed, bridge-fragment-open.
    """
    check_tile("fragment", x)
    dtype, type = number_dtype("fragment", x), x.tile
    if type.linear is None:
        raise fail(errors.FRAGMENT_OPEN, value=name_of(x), layout=x.layout)
    known = register_view(type.linear)
    held = apply(thread.fragment, x)
    if len(known.first) < type.registers:
        held = apply(regs.gather, held, table=known.first)
    storage = allocate_memory(dtype, len(known.first), AddressSpace.LOCAL)
    storage.store(0, Places(tuple(range(len(known.first)))), held, None)
    return LayoutTensor(storage, known.layout, name=f"fragment({x.handle.name or '...'})")


@builtin
def from_fragment(view: LayoutTensor, shape: Sequence[int], layout: DistributedLayout) -> tensor:
    """The tile of this shape and layout whose elements each thread has in a view, as `fragment` makes it of such a tile.

    Threads that hold an element in common must agree on it; the simulator checks that they do. Raises CompilationError
    (bridge-fragment-view), LayoutError (bridge-fragment-shape) where the view has other elements than a thread holds, and where
    layout and shape do not go together.
    """
    if not isinstance(view, LayoutTensor):
        raise fail(errors.FRAGMENT_VIEW, got=describe(view))
    sizes = check_shape("from_fragment", shape)
    layout = check_layout(layout, sizes)
    if not layout.is_resolved:
        raise fail(errors.FRAGMENT_OPEN, value=f"a tile {list(sizes)}", layout=layout)
    known = register_view(layout.to_linear(sizes))
    axes = axes_of(view)
    wanted = [known.layout[axis].size() for axis in range(known.layout.rank())]
    if not _static(axes) or view.element_size != 1 or [extent(axis) for axis in axes] != wanted:
        raise fail(
            errors.FRAGMENT_SHAPE, view=view.history, got=view.layout, shape=list(sizes), layout=layout,
            want=f"{' x '.join(map(str, wanted))} elements",
        )  # fmt: skip
    places = tuple(sum(map(offset_along, axes, each)) for each in known.coordinates)
    held = fit(view.storage.load(view.offset, Places(places), None), VectorForm(len(places)))
    if len(known.number) > len(places):
        held = apply(regs.gather, held, table=known.number)
    assert isinstance(held.handle.type, RegsType)
    return apply(thread.assemble, held, shape=sizes, layout=layout)


def _static(axes: Sequence[Axis]) -> bool:
    numbers: list[Any] = [number for axis in axes for mode in axis for number in (mode.size, mode.stride)]
    return all(isinstance(number, int) for number in numbers)
