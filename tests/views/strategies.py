"""Random views with the NumPy array that each must agree with."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np

from weft.layout.nested.layouts import Layout
from weft.views import LayoutTensor


@st.composite
def shapes(draw, max_rank=3, largest=6):
    return tuple(draw(st.lists(st.integers(1, largest), min_size=1, max_size=max_rank)))


@st.composite
def nested_layouts(draw, max_rank=3):
    """A layout whose modes are tuples of modes, its strides a random compact order with gaps."""
    axes = draw(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=2), min_size=1, max_size=max_rank))
    flat = [(axis, k) for axis, sizes in enumerate(axes) for k in range(len(sizes))]
    strides, step = {}, 1
    for axis, k in draw(st.permutations(flat)):
        strides[axis, k] = step
        step *= axes[axis][k] * draw(st.sampled_from([1, 1, 2]))
    shape = tuple(tuple(sizes) if len(sizes) > 1 else sizes[0] for sizes in axes)
    stride = tuple(
        tuple(strides[axis, k] for k in range(len(sizes))) if len(sizes) > 1 else strides[axis, 0]
        for axis, sizes in enumerate(axes)
    )
    return Layout(shape, stride)


def host(layout, fill=None, dtype=np.float64):
    """A host view over new memory, of different values unless filled."""
    memory = np.arange(layout.cosize(), dtype=dtype) if fill is None else np.full(layout.cosize(), fill, dtype)
    return LayoutTensor(memory, layout)


def by_definition(tensor):
    """The numbers of a host view of scalars in their logical shape, one index at a time through its layout."""
    found = np.empty(tensor.shape, tensor.dtype)
    memory, first = tensor.storage.elements()
    for index in np.ndindex(*tensor.shape):
        found[index] = memory[
            first + tensor.offset + sum(mode(i) for mode, i in zip(tensor.layout, index, strict=True))
        ]
    return found
