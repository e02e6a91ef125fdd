"""Shared memory in kernels: allocations, views of them, and loads and stores of tiles.

    buffers = gl.allocate_shared_memory(gl.float16, [stages, 64, 128], layout)
    buffers.index(i).store(x)
    y = buffers.index(i).load(blocked)

A handle is a value and is passed through calls, loops and branches. The memory it refers to is mutable state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from weft.errors import cluster as cluster_errors
from weft.errors import fail
from weft.errors import layout as layout_errors
from weft.errors import memory as errors
from weft.ir.types import DType, SharedType, int64
from weft.language.advice import shared_array
from weft.language.aggregate import aggregate
from weft.language.broadcast import TileForm, common_form, fit
from weft.language.casts import check_atomic, check_dtype
from weft.language.context import by_threads, current
from weft.language.creation import check_shape
from weft.language.dtypes import distributed_type
from weft.language.handles import check_one_tile, check_stored, emit, memory_handle
from weft.language.layouts import check_layout, check_tile
from weft.language.marks import anywhere, builtin
from weft.language.promote import place_mask
from weft.language.runtime_value import article, describe, name_of, represents, wrap
from weft.language.scalars import int32_scalar
from weft.language.shape import check_axis
from weft.language.tensor import apply, apply_many, tensor
from weft.layout import (
    DistributedLayout,
    MBarrierLayout,
    NVMMASharedLayout,
    SharedLayout,
    SwizzledSharedLayout,
    check_num_ctas,
    check_tile_shape,
)
from weft.layout import bank_conflicts as count_conflicts
from weft.layout.base import is_tile_part
from weft.layout.cluster import block_shape, check_held
from weft.layout.shared.views import contiguous, permuted, reinterpreted, reshaped
from weft.layout.tensor_cores.shared_operands import SharedSide
from weft.ops import cluster
from weft.ops import shared as ops
from weft.ops.memory import Atomic


@dataclass(frozen=True)
class shared_memory_descriptor_type:
    """The type of a handle: element type, shape of the view, layout, and the tile shape to which the layout applies."""

    element_ty: DType
    shape: tuple[int, ...]
    layout: SharedLayout
    alloc_shape: tuple[int, ...]

    def __init__(
        self, element_ty: DType, shape: Sequence[int], layout: SharedLayout, alloc_shape: Sequence[int] | None = None
    ) -> None:
        tile = tuple(shape)[len(shape) - layout.rank :]
        object.__setattr__(self, "element_ty", element_ty)
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "layout", layout)
        object.__setattr__(self, "alloc_shape", tile if alloc_shape is None else tuple(alloc_shape))

    @property
    def nbytes_per_cta(self) -> int:
        """Bytes of the elements that each CTA of a cluster holds; without a cluster, of all elements."""
        leading = len(self.shape) - self.layout.rank
        tile = math.prod(block_shape(self.layout.cga, self.shape[leading:]))
        if not self.layout.cga:
            # A layout that is given by vectors of bits: CTAs hold halves of the tile for each vector that parts them.
            tile >>= sum(map(any, self.layout.to_linear(self.alloc_shape).bases("block")))
        return math.prod(self.shape[:leading]) * tile * self.element_ty.itemsize


@represents(SharedType)
class shared_memory_descriptor(memory_handle):
    """A handle to shared memory: one tile, or several along leading dimensions. Barriers are handles too.

    `allocate_shared_memory` and the methods that form views create handles. Forming a view never fails at run time; an access
    outside of the allocation does.
    """

    __slots__ = ()
    INDEX, SLICE = ops.index, ops.slice

    def describe(self) -> str:
        """What it is, for messages: `a float16 buffer [2, 64, 64]`, `an mbarrier`."""
        t = self.memory
        if isinstance(t.layout, MBarrierLayout):
            count = math.prod(t.shape[:-1])
            return "an mbarrier" if len(t.shape) == 1 else f"an array of {count} mbarriers"
        return f"{article(t.element.name)} buffer {list(t.shape)}"

    @property
    def memory(self) -> SharedType:
        """The IR type of the handle."""
        type = self.handle.type
        assert isinstance(type, SharedType)
        return type

    @property
    def layout(self) -> SharedLayout:
        """The shared memory layout of a tile."""
        return self.memory.layout

    @property
    def type(self) -> shared_memory_descriptor_type:
        """Element type, shape and layout together."""
        t = self.memory
        return shared_memory_descriptor_type(t.element, t.shape, t.layout, t.alloc_shape)

    @property
    def nbytes_per_cta(self) -> int:
        """Bytes of the elements that each CTA of a cluster holds; without a cluster, of all elements."""
        return self.type.nbytes_per_cta

    @property
    def side(self) -> SharedSide:
        """One tile, for planning MMAs, which do not depend on the offset of a slice in its allocation."""
        t = self.memory
        return SharedSide(t.layout, t.alloc_shape, t.shape, (0,) * len(t.alloc_shape))

    # Accesses

    def __getitem__(self, key: object) -> NoReturn:
        self.check_brackets()
        raise fail(errors.SHARED_HANDLE_BRACKETS, got=name_of(self))

    def check_brackets(self) -> None:
        """Raises shared-in-threads: single threads index shared arrays, not tile buffers."""
        if by_threads() and not isinstance(self.layout, MBarrierLayout):
            raise fail(errors.SHARED_IN_THREADS, got=name_of(self), array=shared_array(self.dtype, self.numel))

    def load(self, layout: DistributedLayout) -> tensor:
        """Load the tile into registers. Raises shared-several-tiles, and LayoutError if the layout does not fit."""
        current("load")
        _check_one_tile("load", self)
        return emit(ops.load, self, layout=check_layout(layout, self.memory.shape))

    def store(self, value: tensor) -> None:
        """Store a tile of the same shape and dtype, in any layout. Raises shared-store, shared-several-tiles."""
        current("store")
        _check_one_tile("store", self)
        check_stored(value, self)
        apply_many(ops.store, (self, value))

    def gather(self, indices: tensor, axis: int) -> tensor:
        """Load element `indices[..., i, ...]` along `axis` for each element of `indices`; the result has its shape and layout.

        Raises shared-gather."""
        current("gather")
        _check_integers("gather", self, indices)
        dim = _check_indices("gather", self, indices, tuple(indices.shape), axis)
        return emit(ops.gather, self, indices, axis=dim)

    def scatter(self, values: tensor, indices: tensor, axis: int) -> None:
        """Store each of `values` to element `indices[..., i, ...]` along `axis`; values and indices are broadcast.

        If two indices are equal, one of the values is stored; which one is undefined. Raises shared-gather, shared-scatter.
        """
        current("scatter")
        dim, value, _, at = _scattered("scatter", self, values, indices, axis)
        apply_many(ops.scatter, (self, value, at), axis=dim)

    def atomic_scatter_add(self, values: tensor, indices: tensor, axis: int, mask: Any = None) -> tensor:
        """Atomically add each of `values` to element `indices[..., i, ...]` along `axis`, where `mask` is true.

        Values, indices and mask are broadcast. Returns the old values, in that shape; those of masked-off elements are
        0. The atomics are relaxed and have the scope of the block: equal indices are combined one after another, in
        any order. Element types as of `gl.atomic_add`.

        Raises shared-gather, shared-scatter, language-atomic-type, language-mask-type."""
        return self._atomic("add", values, indices, axis, mask)

    def atomic_scatter_max(self, values: tensor, indices: tensor, axis: int, mask: Any = None) -> tensor:
        """Atomic maximum; otherwise as `atomic_scatter_add`. 32- and 64-bit types."""
        return self._atomic("max", values, indices, axis, mask)

    def atomic_scatter_min(self, values: tensor, indices: tensor, axis: int, mask: Any = None) -> tensor:
        """Atomic minimum; otherwise as `atomic_scatter_add`. 32- and 64-bit types."""
        return self._atomic("min", values, indices, axis, mask)

    def atomic_scatter_and(self, values: tensor, indices: tensor, axis: int, mask: Any = None) -> tensor:
        """Atomic bitwise AND; otherwise as `atomic_scatter_add`. 32- and 64-bit integers."""
        return self._atomic("and", values, indices, axis, mask)

    def atomic_scatter_or(self, values: tensor, indices: tensor, axis: int, mask: Any = None) -> tensor:
        """Atomic bitwise OR; otherwise as `atomic_scatter_add`. 32- and 64-bit integers."""
        return self._atomic("or", values, indices, axis, mask)

    def atomic_scatter_xor(self, values: tensor, indices: tensor, axis: int, mask: Any = None) -> tensor:
        """Atomic bitwise XOR; otherwise as `atomic_scatter_add`. 32- and 64-bit integers."""
        return self._atomic("xor", values, indices, axis, mask)

    def atomic_scatter_xchg(self, values: tensor, indices: tensor, axis: int, mask: Any = None) -> tensor:
        """Atomic exchange; otherwise as `atomic_scatter_add`. 32- and 64-bit types."""
        return self._atomic("xchg", values, indices, axis, mask)

    def _atomic(self, kind: Atomic, values: tensor, indices: tensor, axis: int, mask: Any) -> tensor:
        what = f"atomic_scatter_{kind}"
        current(what)
        dim, value, on, at = _scattered(what, self, values, indices, axis, mask)
        check_atomic(kind, self.dtype)
        return apply(ops.atomic, self, value, on, at, axis=dim, kind=kind)

    # Views

    def peer(self, rank: int | tensor) -> peer_memory:
        """The same buffer in the memory of another block of the cluster, for loads and stores: see `gl.peer_memory`.

        `rank` is 0 to `gl.num_ctas() - 1`, and may differ between blocks. Raises cluster-missing, cluster-peer."""
        current("peer")
        blocks = current().num_ctas
        if blocks == 1:
            raise fail(cluster_errors.MISSING, what="peer()")
        if not isinstance(rank, tensor) and hasattr(rank, "__index__") and not 0 <= int(rank) < blocks:
            raise fail(cluster_errors.PEER, rank=int(rank), got=name_of(self), last=blocks - 1)
        return peer_memory(self, int32_scalar("peer", rank))

    def slice(self, start: int, length: int, dim: int = 0) -> shared_memory_descriptor:
        """Elements `start` to `start + length` along a dimension, all of them compile-time constants.

        Within a tile, lengths are powers of two or multiples of 8, and starts are multiples of the lengths rounded up to powers
        of two. Of the dimensions that count tiles only the first may be sliced.
        Raises shared-slice, shared-slice-aligned, shared-slice-stages."""
        return self._part(start, length, dim)

    def _unaligned(self, start: int, length: int, axis: int) -> shared_memory_descriptor:
        """A part whose length is no power of two. Raises shared-slice-aligned."""
        if not is_tile_part(start, length):
            return super()._unaligned(start, length, axis)
        return emit(ops.slice, self, start=start, length=length, dim=axis)

    def permute(self, order: Sequence[int]) -> shared_memory_descriptor:
        """A view with permuted dimensions: new dimension i is old dimension `order[i]`.

        Raises shared-permute-stages if the permutation moves a leading dimension."""
        current("permute")
        axes = tuple(check_axis(a, self.rank) for a in check_shape("permute", order))
        if sorted(axes) != list(range(self.rank)):
            example = list(reversed(range(self.rank)))
            raise fail(
                layout_errors.ORDER, field="permute's order", order=list(axes), last=self.rank - 1, example=example
            )
        leading = self.leading
        if axes[:leading] != tuple(range(leading)):
            raise fail(errors.SHARED_PERMUTE_STAGES, order=list(axes), got=name_of(self), leading=leading)
        inner = [a - leading for a in axes[leading:]]
        return emit(ops.permute, self, order=axes, layout=permuted(self.layout, inner, self.memory.alloc_shape))

    def reshape(self, shape: Sequence[int]) -> shared_memory_descriptor:
        """A view of a whole tile in another shape, with the elements in row-major order. Raises shared-reshape."""
        current("reshape")
        sizes = check_shape("reshape", shape)
        problem = ""
        if self.memory.shape != self.memory.alloc_shape:
            problem = "it holds several tiles" if self.leading else "it is a part of a tile"
        elif math.prod(sizes) != self.numel:
            problem = f"that counts {math.prod(sizes)} elements, not {self.numel}"
        if problem:
            raise fail(errors.SHARED_RESHAPE, shape=list(sizes), got=name_of(self), problem=problem)
        check_tile_shape(sizes)
        return emit(ops.reshape, self, shape=sizes, layout=reshaped(self.layout, self.memory.shape, sizes))

    def reinterpret(
        self, dtype: DType | None = None, shape: Sequence[int] | None = None, layout: SharedLayout | None = None
    ) -> shared_memory_descriptor:
        """The memory at this handle's address as another type; it may extend beyond this handle, within the allocation.

        Omitted arguments keep their value. A slice of a tile must be contiguous in memory. Raises shared-reinterpret, and
        layout-reinterpret if the new layout requires a larger alignment."""
        current("reinterpret")
        t = self.memory
        part, part_bytes = t.shape[self.leading :], None
        if part != t.alloc_shape:
            part_bytes = contiguous(t.layout, t.alloc_shape, part) * t.element.itemsize
            if not part_bytes:
                raise fail(errors.SHARED_REINTERPRET, got=name_of(self), tile=list(t.alloc_shape))
        element = dtype or t.element
        sizes = _check_memory(element, t.shape if shape is None else shape, layout or t.layout)
        target = reinterpreted(t.layout, layout or t.layout, part_bytes)
        return emit(ops.reinterpret, self, element=element, shape=sizes, layout=target)

    def _reinterpret(self, dtype: DType, shape: Sequence[int], layout: SharedLayout) -> shared_memory_descriptor:
        """`reinterpret` with all arguments."""
        return self.reinterpret(dtype, shape, layout)

    def _keep_alive(self) -> None:
        """Extend the allocation's live range to this point, so that no other allocation reuses its memory earlier."""
        current("_keep_alive")
        apply_many(ops.keep_alive, (self,))


@aggregate
class peer_memory:
    """A buffer in the shared memory of the block of rank `rank` (distributed shared memory), as `buffer.peer(rank)` gives it.

        right = buffer.peer((gl.block_rank_in_cluster() + 1) % gl.num_ctas())
        right.store(x)
        cluster.barrier()
        y = buffer.load(layout)

    A block accesses the places at which its own part of the tile lies in its own memory, so that the tile's layout and the
    buffer's have the same cga_layout (cluster-exchange). Each block acts for itself. A barrier of the cluster, or an mbarrier
    that the other block waits for, has to lie between accesses of two blocks. The compiler adds such barriers only before the
    first access, so that all blocks have started, and before the end of the kernel, so that none has left."""

    memory: shared_memory_descriptor
    rank: tensor

    def load(self, layout: DistributedLayout) -> tensor:
        """Load the tile into registers. Raises shared-several-tiles, cluster-exchange."""
        current("load")
        _check_one_tile("load", self.memory)
        checked = check_layout(layout, self.memory.memory.shape)
        return emit(cluster.load, self.memory, self.rank, layout=checked)

    def store(self, value: tensor) -> None:
        """Store a tile of the same shape and dtype. Raises shared-store, shared-several-tiles, cluster-exchange."""
        current("store")
        _check_one_tile("store", self.memory)
        check_stored(value, self.memory)
        apply_many(cluster.store, (self.memory, self.rank, value))

    def index(self, index: int | tensor) -> peer_memory:
        """As the buffer's `index`."""
        return peer_memory(self.memory.index(index), self.rank)

    def slice(self, start: int, length: int, dim: int = 0) -> peer_memory:
        """As the buffer's `slice`."""
        return peer_memory(self.memory.slice(start, length, dim), self.rank)

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.memory.dtype

    @property
    def shape(self) -> list[int]:
        """Sizes, outermost first."""
        return self.memory.shape

    @property
    def nbytes_per_cta(self) -> int:
        """Bytes of the elements that each CTA of a cluster holds."""
        return self.memory.nbytes_per_cta


@builtin
def allocate_shared_memory(
    element_ty: DType, shape: Sequence[int], layout: SharedLayout, value: tensor | None = None
) -> shared_memory_descriptor:
    """Allocate shared memory for one or several tiles: `layout` applies to the last dimensions, leading ones count tiles.

    `value` is a tile to store initially; without it the contents are undefined. A bool takes one byte. The memory may be
    reused after the last access through a handle to it. An `MBarrierLayout` is for mbarriers, which are int64; elements of
    another type lie in the same places and are data.

    Raises LayoutError: shared-not-a-layout, shared-rank, shared-stages, shared-element-bits, shared-barrier-element,
    layout-cga-gaps, and the layout's errors for shapes that it does not support.
    """
    if isinstance(layout, MBarrierLayout) and element_ty != int64:
        layout = SwizzledSharedLayout(1, 1, 1, [0], cga_layout=layout.cga_layout)
    sizes = _check_memory(element_ty, shape, layout)
    check_held(layout.cga, layout.rank)
    context = current()
    context.allocations += 1
    made = context.builder.emit(ops.alloc, element=element_ty, shape=sizes, layout=layout, tag=context.allocations)
    memory: shared_memory_descriptor = wrap(made)
    if value is not None:
        memory.store(value)
    return memory


@anywhere
def bank_conflicts(distr_ty: Any, shared_ty: Any) -> int:
    """Additional wavefronts per wavefront of an access because of bank conflicts; 0 means conflict-free.

    The access loads or stores a whole tile of type `distr_ty` (a `distributed_type`, as `x.type`) from or to memory of type
    `shared_ty` (a `shared_memory_descriptor_type`, as `smem.type`), with the widest vectors that both layouts allow. Also
    callable on the host. Raises shared-bank-conflicts.
    """
    known = isinstance(distr_ty, distributed_type) and isinstance(shared_ty, shared_memory_descriptor_type)
    if not known or (distr_ty.element_ty, distr_ty.shape) != (shared_ty.element_ty, shared_ty.shape):
        raise fail(errors.SHARED_CONFLICTS, one=repr(distr_ty), other=repr(shared_ty))
    return count_conflicts(distr_ty.layout, distr_ty.shape, shared_ty.layout, shared_ty.element_ty.bits)


def check_buffer(what: str, x: object) -> shared_memory_descriptor:
    """Checks for a handle to memory that is not a barrier, and returns it. Raises shared-handle-needed."""
    if not isinstance(x, shared_memory_descriptor) or isinstance(x.layout, MBarrierLayout):
        fix = "pass what gl.allocate_shared_memory returns"
        raise fail(errors.SHARED_HANDLE_NEEDED, what=what, want="a buffer in shared memory", got=name_of(x), fix=fix)
    return x


def _check_memory(dtype: object, shape: Sequence[int], layout: object) -> tuple[int, ...]:
    """The checked shape of an allocation; the layout applies to its last dimensions."""
    check_dtype(dtype)
    assert isinstance(dtype, DType)
    sizes = check_shape("shared memory", shape)
    if not isinstance(layout, SharedLayout):
        array = shared_array(dtype, math.prod(sizes))
        raise fail(
            errors.SHARED_NOT_A_LAYOUT, got=repr(layout), more=f"; single threads index {array}" if by_threads() else ""
        )
    leading = len(sizes) - layout.rank
    if leading < 0:
        raise fail(errors.SHARED_RANK, shape=list(sizes), layout=layout, rank=layout.rank)
    empty = next((size for size in sizes[:leading] if size < 1), None)
    if empty is not None:
        raise fail(errors.SHARED_STAGES, shape=list(sizes), count=empty, layout=layout, rank=layout.rank)
    _check_element(dtype, layout)
    linear = layout.to_linear(sizes[leading:])
    check_num_ctas(layout, linear.in_size("block"), current().num_ctas)
    return sizes


def _check_element(dtype: DType, layout: SharedLayout) -> None:
    bits = dtype.itemsize * 8
    # Elements of another width lie at the same offsets, counted in elements. TMA and tensor cores check the width themselves.
    if isinstance(layout, NVMMASharedLayout) and layout.fp4_padded and layout.element_bitwidth != bits:
        raise fail(errors.SHARED_ELEMENT_BITS, dtype=dtype.name, bits=bits, layout=layout, own=layout.element_bitwidth)
    if isinstance(layout, MBarrierLayout) and dtype != int64:
        raise fail(errors.SHARED_BARRIER_ELEMENT, dtype=dtype.name)


def _check_one_tile(what: str, memory: shared_memory_descriptor) -> None:
    if isinstance(memory.layout, MBarrierLayout):
        raise fail(errors.SHARED_BARRIER_ACCESS, what=what, got=name_of(memory))
    check_one_tile(what, memory)


def _scattered(
    what: str, memory: shared_memory_descriptor, values: object, indices: object, axis: Any, mask: Any = None
) -> tuple[int, tensor, tensor | None, tensor]:
    """The axis, and the values, mask and indices of a scatter in their common form. Raises shared-gather, shared-scatter."""
    _check_integers(what, memory, indices)
    check_tile(what, values)
    assert isinstance(values, tensor) and isinstance(indices, tensor)
    if values.element != memory.dtype or values.rank != indices.rank:
        raise fail(
            errors.SHARED_SCATTER, what=what, value=name_of(values), got=name_of(memory), indices=name_of(indices)
        )
    form = common_form(what, [x for x in (values, indices, mask) if isinstance(x, tensor)])
    assert isinstance(form, TileForm)
    dim = _check_indices(what, memory, indices, form.shape, axis)
    return dim, fit(values, form), place_mask(what, mask, form), fit(indices, form)


def _check_integers(what: str, memory: shared_memory_descriptor, indices: object) -> None:
    """Check that indices are a tile of integers."""
    _check_one_tile(what, memory)
    check_tile(what, indices)
    assert isinstance(indices, tensor)
    if not (isinstance(indices.element, DType) and indices.element.is_int() and not indices.element.is_bool()):
        raise fail(errors.SHARED_GATHER, what=what, axis=0, got=name_of(memory), indices=describe(indices))


def _check_indices(
    what: str, memory: shared_memory_descriptor, indices: tensor, shape: tuple[int, ...], axis: Any
) -> int:
    """The checked axis of indices that are broadcast to a shape."""
    dim = check_axis(axis, memory.rank)
    same_rank = len(shape) == memory.rank
    if not same_rank or any(d != dim and a != b for d, (a, b) in enumerate(zip(shape, memory.shape, strict=True))):
        raise fail(errors.SHARED_GATHER, what=what, axis=dim, got=name_of(memory), indices=describe(indices))
    return dim
