"""Views as plain tensors with one extent and one stride per axis, as tensor descriptors require."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import fail
from weft.errors import views as errors
from weft.views.modes import axes_of, is_nested, merged
from weft.views.storage import Index

if TYPE_CHECKING:
    from weft.views.tensor import LayoutTensor


def extents(view: LayoutTensor) -> tuple[list[Index], list[Index]]:
    """The number of valid elements along each axis, and the strides in elements.

    Raises LayoutError: bridge-descriptor-nested, bridge-descriptor-vectors for views that are not plain tensors.
    """
    if view.element_size != 1:
        raise fail(errors.BRIDGE_DESCRIPTOR_VECTORS, view=view.history, width=view.element_size)
    strides: list[Index] = []
    for axis, modes in enumerate(axes_of(view)):
        joined = merged(modes) if is_nested(modes) else modes
        if is_nested(joined):
            raise fail(errors.BRIDGE_DESCRIPTOR_NESTED, view=view.history, layout=view.layout, axis=axis)
        strides.append(joined[0].stride)
    return [view.dim(axis) for axis in range(view.rank)], strides
