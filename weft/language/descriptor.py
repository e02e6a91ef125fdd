"""Tensor descriptors in kernels: a tensor in global memory, and the shape and shared memory layout of the blocks that TMA
copies of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weft.ir.core import Value
from weft.ir.types import DescriptorType, DType
from weft.language.runtime_value import RuntimeValue, represents, wrap
from weft.layout import SharedLayout
from weft.layout.cluster import block_shape

if TYPE_CHECKING:
    from weft.language.tensor import tensor


@represents(DescriptorType)
class descriptor_handle(RuntimeValue):
    """The tensor map, opaque to kernels; a `tensor_descriptor` holds it together with shape and strides."""

    __slots__ = ()

    def describe(self) -> str:
        """What it is, for messages: `a descriptor of float16 blocks [64, 128]`."""
        t = self.descriptor
        mode = "" if t.mode == "tiled" else f"an {t.mode} "
        return f"{mode or 'a '}descriptor of {t.element.name} blocks {list(t.block_shape)}"

    @property
    def descriptor(self) -> DescriptorType:
        """The IR type of the descriptor."""
        type = self.handle.type
        assert isinstance(type, DescriptorType)
        return type


@dataclass(frozen=True)
class block_type:
    """The block that one TMA instruction copies. Equality compares element type and shape, not the layout."""

    element_ty: DType
    sizes: tuple[int, ...]
    layout: SharedLayout = field(compare=False)

    @property
    def shape(self) -> list[int]:
        """Sizes of the block, outermost first."""
        return list(self.sizes)

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.sizes)

    @property
    def nbytes(self) -> int:
        """Bytes of a block: the transaction count that a load's mbarrier must expect."""
        return self.numel * self.element_ty.itemsize

    @property
    def nbytes_per_cta(self) -> int:
        """Bytes of a block that each CTA of a cluster receives; without a cluster all of them."""
        return math.prod(block_shape(self.layout.cga, self.sizes)) * self.element_ty.itemsize

    @property
    def scalar(self) -> DType:
        """The element type."""
        return self.element_ty


@dataclass(frozen=True)
class tensor_descriptor_type:
    """The type of a descriptor: the block that one TMA instruction copies, and its shared memory layout."""

    block_type: block_type
    layout: SharedLayout

    @property
    def nbytes(self) -> int:
        """Bytes of a block."""
        return self.block_type.nbytes


class tensor_descriptor:
    """A tensor in global memory whose blocks TMA copies: a kernel argument, or created by `tma.make_tensor_descriptor`.

    `handle` is the tensor map; `shape` and `strides` (in elements) are lists of scalars, outermost dimension first.
    """

    __weft_aggregate__ = {"handle": descriptor_handle, "shape": list, "strides": list}  # noqa: RUF012 as `aggregate` writes it

    handle: descriptor_handle
    shape: list[tensor]
    strides: list[tensor]

    def __init__(self, handle: descriptor_handle, shape: Sequence[Any], strides: Sequence[Any]) -> None:
        self.handle = handle
        self.shape = list(shape)
        self.strides = list(strides)

    @staticmethod
    def of(handle: Value, shape: Sequence[Value], strides: Sequence[Value]) -> tensor_descriptor:
        """A descriptor built from IR values: the handle, extents (int32), and strides in elements (int64).

        Its class follows from its mode, whichever class the method is called on."""
        made: descriptor_handle = wrap(handle)
        kind = tensor_descriptor_im2col if made.descriptor.mode == "im2col" else tensor_descriptor
        return kind(made, list(map(wrap, shape)), list(map(wrap, strides)))

    def __repr__(self) -> str:
        return f"tensor_descriptor({self.handle!r}, {self.shape!r}, {self.strides!r})"

    @property
    def type(self) -> tensor_descriptor_type:
        """The block and its layout together."""
        return tensor_descriptor_type(self.block_type, self.layout)

    @property
    def block_type(self) -> block_type:
        """Element type, shape and bytes of the block that one TMA instruction copies."""
        t = self.handle.descriptor
        return block_type(t.element, t.block_shape, t.layout)

    @property
    def block_shape(self) -> list[int]:
        """Sizes of the block, outermost first."""
        return list(self.handle.descriptor.block_shape)

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.handle.descriptor.element

    @property
    def layout(self) -> SharedLayout:
        """The shared memory layout of a block."""
        return self.handle.descriptor.layout

    @property
    def nbytes_per_cta(self) -> int:
        """Bytes of a block that each CTA of a cluster receives; without a cluster all of them."""
        return self.block_type.nbytes_per_cta

    @property
    def rank(self) -> int:
        """Number of dimensions of the block."""
        return len(self.handle.descriptor.block_shape)


class tensor_descriptor_im2col(tensor_descriptor):
    """An im2col descriptor of a convolution's input (N, spatial dimensions, C). Its blocks are [pixels, channels]."""
