"""Conversion between nested and linear layouts that are the same function.

A nested layout adds its modes' offsets, a linear one XORs its bases. They agree if the offsets of the bits of an index have
no bit in common, as with sizes and strides that are powers of two.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import fail
from weft.errors import layout as layout_errors
from weft.errors import nested as errors
from weft.layout.linear.f2 import is_power_of_two, log2
from weft.layout.linear.maps import LinearLayout
from weft.layout.nested.algebra import coalesce, flat_modes, from_modes, require
from weft.layout.nested.composed import ComposedLayout, Swizzle
from weft.layout.nested.int_tuple import is_tuple
from weft.layout.nested.layouts import Layout, make_layout


def to_linear(layout: Layout | ComposedLayout) -> LinearLayout:
    """The linear layout from indices, one input `dim0`, `dim1`, ... per mode, to the output `offset`.

    The size of `offset` is the next power of two. A layout may stand under a Swizzle, which is linear itself.

    >>> to_linear(Layout((2, 4), (4, 1)))
    LinearLayout(dim0: 1->(4,); dim1: 1->(1,), 2->(2,) -> offset 8)

    Raises LayoutError for sizes that are not powers of two, and for offsets whose sum has a carry.
    """
    inner, swizzle = _parts(layout)
    columns = [_columns(mode) for mode in require(inner, "to_linear")]
    clash = _clash(column for mode in columns for column in mode)
    if clash:
        raise fail(errors.LINEAR_CARRY, layout=inner, first=clash[0], second=clash[1])
    images = [[[swizzle(column)] for column in mode] for mode in columns]
    reached = 0
    for mode in images:
        for (image,) in mode:
            reached |= image
    bases = {f"dim{index}": mode for index, mode in enumerate(images)}
    return LinearLayout.make(bases, [("offset", 1 << reached.bit_length())])


def from_linear(linear: LinearLayout) -> Layout:
    """The nested layout from a linear one's inputs, one mode each, to its flat output index, each mode coalesced.

    >>> from_linear(LinearLayout.make({"row": [[4]], "column": [[1], [2]]}, [("offset", 8)]))
    ((2, 4):(4, 1))

    Raises LayoutError if two bases share a bit, as in swizzled layouts.
    """
    clash = _clash(linear.flat_columns)
    if clash:
        raise fail(errors.LINEAR_XOR, first=clash[0], second=clash[1])
    modes = [coalesce(from_modes([(2, column) for column in linear.columns[dim]])) for dim in linear.in_dims]
    return modes[0] if len(modes) == 1 and not is_tuple(modes[0].shape) else make_layout(*modes)


def _parts(layout: Layout | ComposedLayout) -> tuple[Layout, Swizzle]:
    if isinstance(layout, Layout):
        return layout, Swizzle(0, 0, 0)
    if not isinstance(layout.outer, Swizzle) or layout.offset != 0:
        raise fail(errors.LINEAR_OUTER, layout=layout)
    return layout.inner, layout.outer


def _columns(mode: Layout) -> list[int]:
    """The offset of each bit of a mode's index."""
    columns: list[int] = []
    for size, step in flat_modes(mode):
        if not is_power_of_two(size):
            raise fail(layout_errors.POWER_OF_TWO, what="the shape of a nested layout", value=mode.shape, found=size)
        columns += [step << bit for bit in range(log2(size))]
    return columns


def _clash(columns: Iterable[int]) -> tuple[int, int] | None:
    """Two columns that share a bit."""
    seen: list[int] = []
    for column in columns:
        for other in seen:
            if column & other:
                return other, column
        seen.append(column)
    return None
