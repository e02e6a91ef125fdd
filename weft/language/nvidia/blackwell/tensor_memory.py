"""Tensor memory in kernels: allocations, views of them, and loads and stores of tiles.

    acc = allocate_tensor_memory(gl.float32, [128, 256], TensorMemoryLayout([128, 256], col_stride=1))
    ...
    c = acc.load(acc.get_reg_layout())

A handle is a value and is passed through calls, loops, branches and `warp_specialize`. The memory it refers to is mutable
state. A warp can access 32 of the 128 lanes (PTX ISA, tcgen05.ld), so loads and stores require particular register layouts:
`get_reg_layout` and `get_tmem_reg_layout` return them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from weft.errors import fail
from weft.errors import memory as errors
from weft.ir.types import DType, TensorType, tile_type
from weft.language.arith import PropagateNan, maximum, minimum
from weft.language.broadcast import TileForm, fit
from weft.language.casts import check_dtype
from weft.language.context import current
from weft.language.creation import check_shape
from weft.language.handles import check_one_tile, check_stored, emit, memory_handle
from weft.language.layouts import check_layout
from weft.language.marks import builtin, constexpr_function, unwrap
from weft.language.math import abs as absolute
from weft.language.nvidia.checks import demand
from weft.language.reduction import reduce_one
from weft.language.runtime_value import article, name_of, represents, wrap
from weft.language.scalars import predicate
from weft.language.tensor import apply_many, tensor
from weft.layout import DistributedLayout, DistributedLinearLayout, check_num_ctas
from weft.layout.base import Unreadable
from weft.layout.cluster import Cga, Spelling, cga_fields
from weft.layout.tensor_memory.layouts import COLUMN_BITS, TensorLayout, TensorMemoryLayout, TensorMemoryScalesLayout
from weft.layout.tensor_memory.load_store import TensorSide, plan_tensor_access, register_layout
from weft.ops import tensor_memory as ops

ELEMENT_BITS = (8, 16, 32)
"""Element widths in tensor memory; scales have 8 bits."""


@dataclass(frozen=True)
class tensor_memory_descriptor_type:
    """The type of a handle: element type, shape of the view, layout, and the tile shape to which the layout applies."""

    element_ty: DType
    shape: tuple[int, ...]
    layout: TensorLayout
    alloc_shape: tuple[int, ...]

    def __init__(
        self, element_ty: DType, shape: Sequence[int], layout: TensorLayout, alloc_shape: Sequence[int] | None = None
    ) -> None:
        sizes, placed = tuple(unwrap(shape)), unwrap(alloc_shape)
        object.__setattr__(self, "element_ty", unwrap(element_ty))
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "layout", unwrap(layout))
        object.__setattr__(self, "alloc_shape", sizes[-2:] if placed is None else tuple(placed))

    def get_reg_layout(self, num_warps: int | None = None, instr_variant: str = "32x32b") -> DistributedLinearLayout:
        """The layout in which a tile of it goes to and from registers, by instructions of a variant.

        Without `num_warps` those of the kernel or partition. Raises LayoutError: tmem-warps, tmem-variant,
        tmem-register-layout."""
        warps = current("get_reg_layout").num_warps if num_warps is None else unwrap(num_warps)
        return register_layout(self.element_ty.bits, self.shape[-2:], self.layout, warps, unwrap(instr_variant))


@represents(TensorType)
class tensor_memory_descriptor(memory_handle):
    """A handle to tensor memory: one tile, or several along leading dimensions.

    `allocate_tensor_memory` and the methods that form views create handles. Forming a view never fails at run time; an access
    outside of the allocation does.
    """

    __slots__ = ()
    INDEX, SLICE = ops.index, ops.slice

    def describe(self) -> str:
        """What it is, for messages: `a float32 tensor memory buffer [128, 256]`."""
        t = self.memory
        return f"{article(t.element.name)} tensor memory buffer {list(t.shape)}"

    @property
    def memory(self) -> TensorType:
        """The IR type of the handle."""
        type = self.handle.type
        assert isinstance(type, TensorType)
        return type

    @property
    def layout(self) -> TensorLayout:
        """The tensor memory layout of a tile."""
        return self.memory.layout

    @property
    def type(self) -> tensor_memory_descriptor_type:
        """Element type, shape and layout together."""
        t = self.memory
        return tensor_memory_descriptor_type(t.element, t.shape, t.layout, t.alloc_shape)

    @property
    def side(self) -> TensorSide:
        """One tile, for planning, which does not depend on the offset of a slice in its allocation."""
        t = self.memory
        return TensorSide(t.layout, t.alloc_shape, t.shape, (0, 0))

    def get_reg_layout(self, num_warps: int | None = None, instr_variant: str = "32x32b") -> DistributedLinearLayout:
        """The layout in which the tile goes to and from registers, by instructions of a variant.

        Without `num_warps` those of the kernel or partition. Raises LayoutError: tmem-warps, tmem-variant,
        tmem-register-layout."""
        return self.type.get_reg_layout(num_warps, instr_variant)

    # Accesses

    def load(self, layout: DistributedLayout | None = None) -> tensor:
        """Load the tile into registers, by default in the layout of `get_reg_layout()`.

        MMAs and copies that write it must be complete: wait for the mbarrier of their commit. Raises shared-several-tiles;
        LayoutError: tmem-access for a layout that no instruction loads."""
        current("load")
        check_one_tile("load", self)
        if layout is None or not layout.is_resolved:
            layout = self.get_reg_layout()
        layout = check_layout(layout, self.memory.shape)
        _check_access("load", self, layout)
        return emit(ops.load, self, layout=layout)

    def load_min(
        self,
        layout: DistributedLayout | None = None,
        abs: bool = False,
        propagate_nan: PropagateNan = PropagateNan.NONE,
    ) -> tuple[tensor, tensor]:
        """Load the tile, and the least element of each row, or with `abs` the least magnitude; rows have `SliceLayout(1, ...)`
        of the tile's layout. With `propagate_nan` ALL a row with a NaN has NaN; else NaNs are ignored.

        The targets have no `tcgen05.ld.red`, so the minimum is reduced from the registers. Raises the errors of `load`."""
        return self._load_extreme(minimum, layout, abs, propagate_nan)

    def load_max(
        self,
        layout: DistributedLayout | None = None,
        abs: bool = False,
        propagate_nan: PropagateNan = PropagateNan.NONE,
    ) -> tuple[tensor, tensor]:
        """Load the tile, and the largest element of each row; otherwise as `load_min`."""
        return self._load_extreme(maximum, layout, abs, propagate_nan)

    def _load_extreme(
        self, extreme: Any, layout: DistributedLayout | None, magnitudes: bool, propagate_nan: PropagateNan
    ) -> tuple[tensor, tensor]:
        value = self.load(layout)
        of = absolute(value) if unwrap(magnitudes) else value
        return value, reduce_one(of, 1, partial(extreme, propagate_nan=unwrap(propagate_nan)))

    def store(self, value: tensor, pred: Any = True) -> None:
        """Store a tile of the same shape and dtype, if `pred` is true.

        Raises shared-store, shared-several-tiles, language-predicate; LayoutError: tmem-access for a layout that no
        instruction stores."""
        current("store")
        check_one_tile("store", self)
        check_stored(value, self)
        if not value.layout.is_resolved:
            value = fit(value, TileForm(self.memory.shape, check_layout(self.get_reg_layout(), self.memory.shape)))
        _check_access("store", self, value.layout)
        apply_many(ops.store, (self, value, predicate("store, pred,", pred)))

    # Views

    def slice(self, start: int, length: int, dim: int = 1) -> tensor_memory_descriptor:
        """Elements `start` to `start + length` along a dimension, all of them compile-time constants.

        Within a tile, lengths are powers of two. Starts are multiples of them, except along the columns of one tile where these
        follow each other in memory: there they are at 32-bit columns, and the result is a tile of its own. Of the dimensions
        that count tiles only the first may be sliced.
        Raises shared-slice, shared-slice-aligned, shared-slice-stages."""
        return self._part(start, length, dim)

    def _unaligned(self, start: int, length: int, axis: int) -> tensor_memory_descriptor:
        """Columns of a tile from any 32-bit column on. Raises shared-slice-aligned."""
        t = self.memory
        whole, power = t.shape[-2] == t.alloc_shape[0], not length & (length - 1)
        step = (
            t.layout.column_step(t.alloc_shape, length) if axis == 1 and not self.leading and whole and power else None
        )
        first, rest = divmod((step or 0) * start * t.element.bits, COLUMN_BITS)
        if step is None or rest:
            return super()._unaligned(start, length, axis)
        return emit(
            ops.reinterpret, self, element=t.element, shape=(t.shape[0], length), layout=t.layout, column=first
        )  # fmt: skip

    def reinterpret(
        self, dtype: DType | None = None, shape: Sequence[int] | None = None, layout: TensorLayout | None = None
    ) -> tensor_memory_descriptor:
        """The columns at this handle's address as another type; they may extend beyond this handle, within the allocation.

        Omitted arguments keep their value. Raises tmem-reinterpret for a slice of a tile's rows, and the errors of
        `allocate_tensor_memory` for types, shapes and layouts."""
        current("reinterpret")
        t = self.memory
        if t.shape[-2] != t.alloc_shape[0]:
            raise fail(errors.TMEM_REINTERPRET, got=name_of(self), tile=list(t.alloc_shape))
        element, placed = dtype or t.element, layout or t.layout
        sizes = _check_memory(element, t.shape if shape is None else shape, placed)
        return emit(ops.reinterpret, self, element=element, shape=sizes, layout=placed)

    def _reinterpret(self, dtype: DType, shape: Sequence[int], layout: TensorLayout) -> tensor_memory_descriptor:
        """`reinterpret` with all arguments."""
        return self.reinterpret(dtype, shape, layout)


@builtin
def allocate_tensor_memory(
    element_ty: DType, shape: Sequence[int], layout: TensorLayout, value: tensor | None = None
) -> tensor_memory_descriptor:
    """Allocate tensor memory for one or several tiles: `layout` applies to the last two dimensions, leading ones count tiles.

    `value` is a tile to store initially; without it the contents are undefined. The memory is allocated for the whole kernel
    and never reused, also in a partition of `warp_specialize`. A multiprocessor has 512 columns of 128 lanes of 32 bits, and a
    kernel allocates a power of two of them (PTX ISA, tcgen05.alloc).


    Raises CompilationError: async-target; LayoutError: tmem-not-a-layout, tmem-shape, tmem-element,
    tmem-two-ctas-mixed, layout-num-ctas, tmem-block-shape.
    """
    demand("allocate_tensor_memory", "tensor memory")
    context = current()
    sizes = _check_memory(element_ty, shape, layout)
    context.allocations += 1
    made = context.builder.emit(ops.alloc, element=element_ty, shape=sizes, layout=layout, tag=context.allocations)
    memory: tensor_memory_descriptor = wrap(made)
    if value is not None:
        memory.store(value)
    return memory


@constexpr_function
def get_tmem_reg_layout(
    element_ty: DType, shape: Sequence[int], layout: TensorLayout, num_warps: int, instr_variant: str = "32x32b",
    ctas_per_cga: Sequence[int] | None = None, cta_split_num: Sequence[int] | None = None,
    cta_order: Sequence[int] | None = None, cga_layout: Sequence[Sequence[int]] | None = None,
) -> DistributedLinearLayout:  # fmt: skip
    """The register layout of a tile of `shape` for loads from and stores to tensor memory in `layout`.

    `instr_variant` is the shape of the instruction: 32x32b (one row per thread), 16x64b, 16x128b, 16x256b (MMA fragments),
    16x32bx2, or 32x32b_splitn, a 32x32b of which each thread has parts of both halves of the columns. The tile's distribution
    over the CTAs of a cluster is that of `layout`, or, if it has none, that of the last arguments.

    Also callable on the host. Raises LayoutError: tmem-warps, tmem-variant, tmem-register-layout, tmem-block-shape.
    """
    check_dtype(element_ty)
    cga = _cga(ctas_per_cga, cta_split_num, cta_order, cga_layout)
    return register_layout(element_ty.bits, tuple(shape), layout, num_warps, instr_variant, cga)


@constexpr_function
def get_tmem_32x32b_reg_layout(
    M: int, N: int, shape: Sequence[int], num_warps: int, ctas_per_cga: Sequence[int] | None = None,
    cta_split_num: Sequence[int] | None = None, cta_order: Sequence[int] | None = None,
    cga_layout: Sequence[Sequence[int]] | None = None,
) -> DistributedLinearLayout:  # fmt: skip
    """The register layout of a tile of `shape` for `TensorMemoryLayout([M, N], col_stride=1)`, with one row per thread.

    Also callable on the host. Raises the errors of `get_tmem_reg_layout`.
    """
    cga = _cga(ctas_per_cga, cta_split_num, cta_order, cga_layout)
    return register_layout(32, tuple(shape), TensorMemoryLayout([M, N]), num_warps, "32x32b", cga)


def _cga(*spelled: Any) -> Cga:
    return cga_fields(Spelling(*spelled), 2)["cga_layout"] or ()


def _check_access(what: str, memory: tensor_memory_descriptor, layout: DistributedLayout) -> None:
    """Reject register layouts that no instruction loads or stores (tmem-access)."""
    t = memory.memory
    tile = tile_type(t.element, t.shape, layout).linear
    assert tile is not None
    plan = plan_tensor_access(tile, memory.side, t.element.bits, current().num_warps)
    if isinstance(plan, Unreadable):
        got = name_of(memory)
        raise fail(
            errors.TMEM_ACCESS, what=what, got=got, layout=t.layout, tile=layout, reason=plan.reason, fix=plan.fix
        )


def _check_memory(dtype: object, shape: Sequence[int], layout: object) -> tuple[int, ...]:
    """The checked shape of an allocation; the layout applies to its last two dimensions."""
    check_dtype(dtype)
    assert isinstance(dtype, DType)
    if not isinstance(layout, TensorLayout):
        raise fail(errors.TMEM_NOT_A_LAYOUT, got=repr(layout))
    sizes = check_shape("tensor memory", shape)
    if len(sizes) < 2 or min(sizes) < 1:
        raise fail(errors.TMEM_SHAPE, shape=list(sizes), layout=layout)
    _check_element(dtype, layout)
    check_num_ctas(layout, layout.to_linear(sizes[-2:]).in_size("block"), current().num_ctas)
    if isinstance(layout, TensorMemoryLayout):
        _check_blocks(layout)
    return sizes


def _check_element(dtype: DType, layout: TensorLayout) -> None:
    if isinstance(layout, TensorMemoryScalesLayout):
        fits, allowed, known = dtype.bits == 8, "8 bits", "gl.uint8 (powers of two) or gl.float8e4nv"
    elif isinstance(layout, TensorMemoryLayout) and layout.fp4_padded:
        fits, allowed, known = dtype.bits == 8, "8 bits", "gl.uint8, two elements of e2m1 in each"
    else:
        fits, allowed = dtype.bits in ELEMENT_BITS, "8, 16 or 32 bits"
        known = "the types of these sizes, as gl.float32 or gl.float16"
    if not fits:
        raise fail(errors.TMEM_ELEMENT, dtype=dtype.name, bits=dtype.bits, layout=layout, allowed=allowed, known=known)


def _check_blocks(layout: TensorMemoryLayout) -> None:
    """Checks that a kernel's MMAs either all use `cta_group::1` or all `cta_group::2` (PTX ISA, tcgen05.mma)."""
    context = current()
    if context.two_ctas is None:
        context.two_ctas = layout.two_ctas
    if context.two_ctas != layout.two_ctas:
        blocks, before = (("two blocks" if two else "one block") for two in (layout.two_ctas, context.two_ctas))
        raise fail(errors.TMEM_TWO_CTAS_MIXED, layout=layout, blocks=blocks, before=before, two_ctas=context.two_ctas)


__all__ = [
    "TensorMemoryLayout", "TensorMemoryScalesLayout", "allocate_tensor_memory", "get_tmem_32x32b_reg_layout",
    "get_tmem_reg_layout", "tensor_memory_descriptor", "tensor_memory_descriptor_type",
]  # fmt: skip
