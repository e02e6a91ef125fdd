"""Ragged descriptors: TMA copies of slices of rows whose ends fall inside of blocks.

    desc = create_ragged_descriptor(x, [64, 32])                                    # on the host, for x of any number of rows
    async_load_ragged(desc, first, count, [row, column], bar, buffer)               # in a kernel
    async_store_ragged(out, first, count, [row, column], buffer)

An array holds slices of unequal numbers of rows, one after another, as the groups of a grouped product. A block that reaches
beyond its slice would read rows of the next one, or overwrite them. Through a ragged descriptor rows behind the slice are out
of bounds: they are read as zero and are not written.

The hardware checks bounds against extents that a descriptor fixes, and slices differ in their last row. So the ragged dimension
has the extent 2**30, and a slice is placed so that it ends there: row `i` of a slice of `count` rows has the coordinate
2**30 - count + i. Two dimensions in front move the address back, modulo 2**64: one by 2**30 times (2**34 - stride), which is
-2**30 * stride, and one by `first + count` times the stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from weft import language as gl
from weft.errors import asynchronous as errors
from weft.errors import fail
from weft.kernel import jit
from weft.language.nvidia.hopper import tma
from weft.layout import NVMMASharedLayout
from weft.nvidia.describe import tensor_of
from weft.nvidia.hopper import Element, TensorDescriptor
from weft.runtime.arguments import extents
from weft.runtime.dtypes import ITEMSIZE

END = 1 << 30
"""The coordinate behind the last row of every slice."""
_WRAP = 1 << 34
_ANY = 0x7FFF0000
"""The extent of a dimension whose coordinate is never out of bounds."""
_RANKS = (2, 3)


def create_ragged_descriptor(
    tensor: Any, block_shape: Sequence[int], ragged_dim: int = 0, layout: NVMMASharedLayout | None = None
) -> TensorDescriptor:
    """The ragged descriptor of an array of two or three dimensions, whose slices along `ragged_dim` may end anywhere.

    `block_shape` has the array's rank, and `layout` is the layout of such a block in shared memory (default:
    `NVMMASharedLayout.get_default_for`). The last dimension cannot be ragged, and the ragged one has at most 2**30 rows.
    The descriptor's own blocks have two dimensions of size 1 in front. Raises LaunchError: ragged-rank, ragged-dim,
    ragged-rows, and what `TensorDescriptor` raises.
    """
    found = extents(tensor)
    if found is None:
        raise fail(errors.DESCRIPTOR_TENSOR, value=repr(tensor))
    known = tensor_of(tensor, *found)
    shape, strides = list(known.shape), list(known.strides)
    rank = len(shape)
    if rank not in _RANKS or len(block_shape) != rank:
        raise fail(errors.RAGGED_RANK, shape=shape, block=list(block_shape))
    dim = ragged_dim + rank if ragged_dim < 0 else ragged_dim
    if not 0 <= dim < rank - 1:
        raise fail(errors.RAGGED_DIM, dim=ragged_dim, shape=shape)
    if shape[dim] > END:
        raise fail(errors.RAGGED_ROWS, dim=dim, shape=shape, most=END)
    if layout is None:
        layout = NVMMASharedLayout.get_default_for(block_shape, Element(8 * ITEMSIZE[known.dtype]))
    cluster = [[0, 0, *vector] for vector in layout.cga_layout or ()]
    whole = replace(layout, rank=rank + 2, cga_layout=cluster)
    return TensorDescriptor(tensor, *ragged_form(shape, strides, dim), [1, 1, *block_shape], whole)


def ragged_form(shape: Sequence[int], strides: Sequence[int], dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of the descriptor of an array whose slices along `dim` end anywhere: two dimensions more in front."""
    rows = (*shape[:dim], END, *shape[dim + 1 :])
    return (_ANY, _ANY, *rows), (_WRAP - strides[dim], strides[dim], *strides)


@jit
def to_ragged_indices(slice_off: Any, slice_size: Any, row: Any):
    """The three coordinates of a row of a slice: of the two dimensions in front, and of the ragged one."""
    return END, slice_off + slice_size, END - slice_size + row


@jit
def _coordinates(desc: Any, slice_off: Any, slice_size: Any, coords: Any, ragged_dim: gl.constexpr):
    """The coordinates of a block whose first element is at `coords` of a slice."""
    gl.static_assert(len(desc.shape) == len(coords) + 2, "a ragged descriptor has two dimensions more than coordinates")
    first, second, row = to_ragged_indices(slice_off, slice_size, coords[ragged_dim])
    return [first, second, *coords[:ragged_dim], row, *coords[ragged_dim + 1 :]]


@jit
def async_load_ragged(
    desc: Any, slice_off: Any, slice_size: Any, coords: Any, barrier: Any, result: Any, ragged_dim: gl.constexpr = 0,
    pred: Any = True,
):  # fmt: skip
    """Start a load of a block whose first element is at `coords` of the slice of `slice_size` rows from row `slice_off` on.

    `result` is a buffer of the block's shape, without the two dimensions in front. Elements behind the slice are read as the
    descriptor's padding. `desc.block_type.nbytes` bytes count on the barrier, as of `tma.async_load`, whose errors it raises.
    """
    at = _coordinates(desc, slice_off, slice_size, coords, ragged_dim)
    tma.async_load(desc, at, barrier, result.reshape([1, 1, *result.shape]), pred=pred)


@jit
def async_store_ragged(desc: Any, slice_off: Any, slice_size: Any, coords: Any, src: Any, ragged_dim: gl.constexpr = 0):
    """Start a store of a block to a slice, as `tma.async_store`; elements behind the slice are not written."""
    at = _coordinates(desc, slice_off, slice_size, coords, ragged_dim)
    tma.async_store(desc, at, src.reshape([1, 1, *src.shape]))


@jit
def async_atomic_add_ragged(
    desc: Any, slice_off: Any, slice_size: Any, coords: Any, src: Any, ragged_dim: gl.constexpr = 0
):
    """Start an atomic addition of a block to a slice, as `tma.async_atomic_add`; elements behind the slice are left alone."""
    at = _coordinates(desc, slice_off, slice_size, coords, ragged_dim)
    tma.async_atomic_add(desc, at, src.reshape([1, 1, *src.shape]))


__all__ = [
    "async_atomic_add_ragged", "async_load_ragged", "async_store_ragged", "create_ragged_descriptor", "to_ragged_indices",
]  # fmt: skip
