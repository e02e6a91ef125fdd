"""Tensor descriptors, which kernels use to copy blocks with TMA (Hopper and later; in the simulator too).

    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    desc = TensorDescriptor.from_tensor(x, [64, 64], layout)
    kernel[grid](desc)

Making one that equals an earlier one costs a look-up, so hosts make them at each launch. A descriptor keeps its array alive.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from weft.errors import asynchronous as errors
from weft.errors import fail
from weft.errors import views as view_errors
from weft.layout import NVMMASharedLayout
from weft.nvidia.describe import im2col, tensor_of, tiled
from weft.runtime.arguments import extents
from weft.runtime.descriptor import HostDescriptor, TensorMap
from weft.runtime.specialise import view_argument

D = TypeVar("D", bound=type)
_KEPT = 1024
"""Above this many tensor maps the table starts anew."""

_known: dict[tuple[Any, ...], TensorMap] = {}
"""Tensor maps by content. They hold addresses and no arrays, so an entry is as good for memory that was given out again."""
_new = object.__new__


class _Element(NamedTuple):
    """What layouts ask of an element type."""

    primitive_bitwidth: int


def _replaceable(cls: D) -> D:
    """Let `dataclasses.replace` make a descriptor like another one: the arguments of its class are its fields."""
    cls.__annotations__ = dict.fromkeys(inspect.signature(cls).parameters, Any)
    dataclass(init=False, repr=False, eq=False)(cls)
    return cls


@_replaceable
class TensorDescriptor(HostDescriptor):
    """A tensor in global memory, of which TMA copies blocks.

    `TensorDescriptor(base, shape, strides, block_shape, layout, padding="zero")` describes what lies at the address of the
    array `base`, with `strides` in elements; `from_tensor` describes the array itself. Blocks have the tensor's rank, their
    sizes are powers of two, and they lie in shared memory as `layout` says, an `NVMMASharedLayout`. Outside of the tensor
    zeros are read, or NaNs with `padding="nan"`, and nothing is written.

    A block of one row, [1, C], is for Blackwell's gathers and scatters of rows. In a layout with `fp4_padded` bytes are pairs
    of fp4, which Blackwell's TMA spreads over twice the memory, rows of 64 bytes at a time.

    Attributes: `base`, `shape`, `strides`, `block_shape`, `layout`, `padding`, `dtype`, `mode`; `dataclasses.replace` gives a
    descriptor with others. For `kernel.warmup`, a `MockTensor` or a dtype's name stands for `base`.
    Raises LaunchError: descriptor-* (see `weft.errors.asynchronous`), LayoutError where block and layout do not fit each other.
    """

    __slots__ = ()

    def __init__(
        self,
        base: Any,
        shape: Sequence[int],
        strides: Sequence[int],
        block_shape: Sequence[int],
        layout: Any,
        padding: str = "zero",
    ) -> None:
        super().__init__(base, _tensor_map(base, shape, strides, block_shape, layout, padding))

    @staticmethod
    def from_tensor(tensor: Any, block_shape: Sequence[int], layout: Any, padding: str = "zero") -> TensorDescriptor:
        """The descriptor of a whole array: of PyTorch, NumPy, CuPy, or any other with DLPack. Raises as the class does."""
        try:
            tensor_map = _known[
                tensor.data_ptr(), tensor.get_device(), tensor.dtype, tensor.shape, tensor.stride(), tuple(block_shape),
                layout, padding,
            ]  # fmt: skip
        except (AttributeError, KeyError, TypeError):
            # New, or no tensor of PyTorch, or no argument that can be hashed: the checked way tells which.
            return TensorDescriptor(tensor, *_extents(tensor), block_shape, layout, padding)
        return _descriptor(tensor, tensor_map)

    @staticmethod
    def from_view(view: Any, block_shape: Sequence[int], layout: Any = None, padding: str = "zero") -> TensorDescriptor:
        """The descriptor of what a `weft.LayoutTensor` of an array views: its first element, extents and strides.

        Without a layout blocks lie as `NVMMASharedLayout.get_default_for` says. Of a masked view only what is inside belongs
        to the tensor. Raises LaunchError (bridge-descriptor-view), LayoutError (bridge-descriptor-nested,
        bridge-descriptor-vectors), and as the class does where strides or alignment are such as TMA cannot take.
        """
        argument = view_argument(view)
        if argument is None:
            raise fail(view_errors.BRIDGE_DESCRIPTOR_VIEW, got=repr(view))
        # Views need NumPy, which a program without them does not import.
        from weft.views.extents import extents as of_view

        array = argument.array
        if layout is None:
            layout = NVMMASharedLayout.get_default_for(block_shape, _Element(8 * view.dtype.itemsize))
        return _descriptor(
            array, _tensor_map(array, *of_view(view), block_shape, layout, padding, argument.byte_offset)
        )


@_replaceable
class TensorDescriptorIm2Col(HostDescriptor):
    """An image tensor (N, one to three spatial dimensions, C), of which TMA copies columns of pixels for convolutions.

    `block_shape` is [pixels, channels], with a `layout` of rank 2. Pixels are taken from the box between the corners,
    which are offsets from the first and the last pixel of each spatial dimension, `element_strides` apart in each dimension of
    the tensor. Other arguments, attributes and errors are those of `TensorDescriptor`.
    """

    __slots__ = ()

    def __init__(
        self,
        base: Any,
        shape: Sequence[int],
        strides: Sequence[int],
        block_shape: Sequence[int],
        layout: Any,
        padding: str = "zero",
        element_strides: Sequence[int] | None = None,
        pixel_box_lower_corner: Sequence[int] | None = None,
        pixel_box_upper_corner: Sequence[int] | None = None,
    ) -> None:
        tensor = tensor_of(base, shape, strides)
        corners = (element_strides, pixel_box_lower_corner, pixel_box_upper_corner)
        super().__init__(base, im2col(tensor, block_shape, layout, padding, *corners))

    @staticmethod
    def from_tensor(
        tensor: Any,
        block_shape: Sequence[int],
        layout: Any,
        padding: str = "zero",
        element_strides: Sequence[int] | None = None,
        pixel_box_lower_corner: Sequence[int] | None = None,
        pixel_box_upper_corner: Sequence[int] | None = None,
    ) -> TensorDescriptorIm2Col:
        """The descriptor of a whole array, as `TensorDescriptor.from_tensor`."""
        corners = (element_strides, pixel_box_lower_corner, pixel_box_upper_corner)
        return TensorDescriptorIm2Col(tensor, *_extents(tensor), block_shape, layout, padding, *corners)

    @property
    def element_strides(self) -> list[int]:
        """Distance between the pixels taken, one for each dimension of the tensor."""
        return list(self._im2col.steps)

    @property
    def pixel_box_lower_corner(self) -> list[int]:
        """Where the pixels' box begins, from the first pixel of each spatial dimension."""
        return list(self._im2col.lower)

    @property
    def pixel_box_upper_corner(self) -> list[int]:
        """Where the pixels' box ends, from the last pixel of each spatial dimension."""
        return list(self._im2col.upper)

    @property
    def _im2col(self) -> Any:
        return self.tensor_map.spec.im2col


def _descriptor(base: Any, tensor_map: TensorMap) -> TensorDescriptor:
    made = _new(TensorDescriptor)
    made.base = base
    made.tensor_map = tensor_map
    return made


def _extents(tensor: Any) -> tuple[Any, Any]:
    found = extents(tensor)
    if found is None and view_argument(tensor) is not None:
        raise fail(view_errors.BRIDGE_DESCRIPTOR_TENSOR, got=repr(tensor))
    if found is None:
        raise fail(errors.DESCRIPTOR_TENSOR, value=repr(tensor))
    return found


def _tensor_map(
    base: Any, shape: Sequence[int], strides: Sequence[float], block_shape: Sequence[int], layout: Any, padding: str,
    byte_offset: int = 0,
) -> TensorMap:  # fmt: skip
    """The map of a tensor, from the table where its content is known. Its keys are those of `TensorDescriptor.from_tensor`."""
    tensor, block = tensor_of(base, shape, strides, byte_offset), tuple(block_shape)
    dtype = getattr(base, "dtype", tensor.dtype)
    key = (tensor.pointer, tensor.device, dtype, tensor.shape, tensor.strides, block, layout, padding)
    try:
        return _known[key]
    except (KeyError, TypeError):
        made = tiled(tensor, block, layout, padding)
    if len(_known) >= _KEPT:
        _known.clear()
    _known[key] = made
    return made
