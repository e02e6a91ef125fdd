"""Tensor descriptors, by which kernels copy blocks with TMA (Hopper and later, and the simulator).

    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    desc = TensorDescriptor.from_tensor(x, [64, 64], layout)
    kernel[grid](desc)

Creating a descriptor equal to an earlier one is one look-up, so hosts can create them at each launch. A descriptor keeps its
array alive.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from weft.bounded import keep
from weft.errors import asynchronous as errors
from weft.errors import fail
from weft.errors import views as view_errors
from weft.layout import NVMMASharedLayout
from weft.nvidia.describe import im2col, tensor_of, tiled
from weft.runtime import rehearsal
from weft.runtime.arguments import extents
from weft.runtime.descriptor import HostDescriptor, TensorMap
from weft.runtime.specialise import view_argument

D = TypeVar("D", bound=type)
_known: dict[tuple[Any, ...], TensorMap] = {}
"""Tensor maps by content. They contain an address and no reference to an array, so an entry stays valid when the allocator
reuses the address."""
_new = object.__new__


class Element(NamedTuple):
    """The part of an element type that layouts use."""

    primitive_bitwidth: int


def _replaceable(cls: D) -> D:
    """Support `dataclasses.replace` for descriptors: the arguments of the class become dataclass fields."""
    cls.__annotations__ = dict.fromkeys(inspect.signature(cls).parameters, Any)
    dataclass(init=False, repr=False, eq=False)(cls)
    return cls


@_replaceable
class TensorDescriptor(HostDescriptor):
    """A tensor in global memory, of which TMA copies blocks.

    `TensorDescriptor(base, shape, strides, block_shape, layout, padding="zero", round_f32_to_tf32=False)` describes a tensor at
    the address of the array `base`, with `strides` in elements; `from_tensor` describes the array itself. Blocks have the
    tensor's rank, their sizes are powers of two or multiples of 8, and `layout`, an `NVMMASharedLayout`, is their layout in
    shared memory.
    Out-of-bounds elements are read as zero, or as NaN with `padding="nan"`, and are never written. With `round_f32_to_tf32`
    loads round float32 elements to the nearest tf32, ties to even.

    A block of one row, [1, C], is for Blackwell's gather and scatter of rows. In a layout with `fp4_padded`, bytes are pairs of
    fp4, which Blackwell's TMA expands to twice the size in shared memory, in rows of 64 bytes.

    Attributes: `base`, `shape`, `strides`, `block_shape`, `layout`, `padding`, `round_f32_to_tf32`, `dtype`, `mode`;
    `dataclasses.replace` returns a descriptor with other values. `block_shape` and then `layout` may be assigned, as hooks of
    an autotuner do; the next launch checks them. A block of ones stands for one to be assigned. For `kernel.warmup`, a
    `MockTensor` or a dtype's name stands for `base`.

    Raises LaunchError: descriptor-* (see `weft.errors.asynchronous`), LayoutError if block and layout do not match.
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
        round_f32_to_tf32: bool = False,
    ) -> None:
        self._begin(
            base, shape=shape, strides=strides, block_shape=block_shape, layout=layout, padding=padding,
            round_f32_to_tf32=bool(round_f32_to_tf32),
        )  # fmt: skip

    def _make_map(self, arguments: dict[str, Any]) -> TensorMap:
        return _tensor_map(self.base, *arguments.values())

    @staticmethod
    def from_tensor(
        tensor: Any, block_shape: Sequence[int], layout: Any, padding: str = "zero", round_f32_to_tf32: bool = False
    ) -> TensorDescriptor:
        """The descriptor of a whole array of PyTorch, NumPy, CuPy, or any library with DLPack. Raises as the class does."""
        if rehearsal.under_way and rehearsal.leaving_out():
            return TensorDescriptor(tensor, *_extents(tensor), block_shape, layout, padding, round_f32_to_tf32)
        try:
            tensor_map = _known[
                tensor.data_ptr(), tensor.get_device(), tensor.dtype, tensor.shape, tensor.stride(), tuple(block_shape),
                layout, padding, round_f32_to_tf32,
            ]  # fmt: skip
        except (AttributeError, KeyError, TypeError):
            # A new descriptor, not a PyTorch tensor, or an unhashable argument: the checked path handles all of these.
            return TensorDescriptor(tensor, *_extents(tensor), block_shape, layout, padding, round_f32_to_tf32)
        return _descriptor(tensor, tensor_map)

    @staticmethod
    def from_view(view: Any, block_shape: Sequence[int], layout: Any = None, padding: str = "zero") -> TensorDescriptor:
        """The descriptor of a `weft.LayoutTensor` of an array: its first element, extents and strides.

        The default layout is `NVMMASharedLayout.get_default_for`. Of a masked view only the valid part belongs to the tensor.
        Raises LaunchError (bridge-descriptor-view), LayoutError (bridge-descriptor-nested, bridge-descriptor-vectors), and as
        the class does for strides or alignment that TMA does not support.
        """
        argument = view_argument(view)
        if argument is None:
            raise fail(view_errors.BRIDGE_DESCRIPTOR_VIEW, got=repr(view))
        # Imported here because views import NumPy, which programs without views do not need.
        from weft.views.extents import extents as of_view

        array = argument.array
        if layout is None:
            layout = NVMMASharedLayout.get_default_for(block_shape, Element(8 * view.dtype.itemsize))
        return _descriptor(
            array, _tensor_map(array, *of_view(view), block_shape, layout, padding, byte_offset=argument.byte_offset)
        )


@_replaceable
class TensorDescriptorIm2Col(HostDescriptor):
    """An image tensor (N, one to three spatial dimensions, C), from which TMA copies im2col columns for convolutions.

    `block_shape` is [pixels, channels], with a `layout` of rank 2. Pixels are taken from the box between the corners, which are
    offsets from the first and the last pixel of each spatial dimension, at steps of `element_strides` in each dimension of the
    tensor. Other arguments, attributes and errors are those of `TensorDescriptor`.
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
        round_f32_to_tf32: bool = False,
    ) -> None:
        self._begin(
            base, shape=shape, strides=strides, block_shape=block_shape, layout=layout, padding=padding,
            element_strides=element_strides, pixel_box_lower_corner=pixel_box_lower_corner,
            pixel_box_upper_corner=pixel_box_upper_corner, round_f32_to_tf32=round_f32_to_tf32,
        )  # fmt: skip

    def _make_map(self, arguments: dict[str, Any]) -> TensorMap:
        shape, strides, block_shape, layout, padding, steps, lower, upper, rounds = arguments.values()
        tensor = tensor_of(self.base, shape, strides)
        return im2col(tensor, block_shape, layout, padding, steps, lower, upper, bool(rounds))

    @staticmethod
    def from_tensor(
        tensor: Any,
        block_shape: Sequence[int],
        layout: Any,
        padding: str = "zero",
        element_strides: Sequence[int] | None = None,
        pixel_box_lower_corner: Sequence[int] | None = None,
        pixel_box_upper_corner: Sequence[int] | None = None,
        round_f32_to_tf32: bool = False,
    ) -> TensorDescriptorIm2Col:
        """The descriptor of a whole array, as `TensorDescriptor.from_tensor`."""
        corners = (element_strides, pixel_box_lower_corner, pixel_box_upper_corner)
        extents, strides = _extents(tensor)
        return TensorDescriptorIm2Col(
            tensor, extents, strides, block_shape, layout, padding, *corners, round_f32_to_tf32
        )

    @property
    def element_strides(self) -> list[int]:
        """Steps between the pixels taken, one per dimension of the tensor."""
        return list(self._argument("element_strides", lambda tensor_map: _im2col_of(tensor_map).steps) or ())

    @property
    def pixel_box_lower_corner(self) -> list[int]:
        """Start of the pixel box, relative to the first pixel of each spatial dimension."""
        return list(self._argument("pixel_box_lower_corner", lambda tensor_map: _im2col_of(tensor_map).lower) or ())

    @property
    def pixel_box_upper_corner(self) -> list[int]:
        """End of the pixel box, relative to the last pixel of each spatial dimension."""
        return list(self._argument("pixel_box_upper_corner", lambda tensor_map: _im2col_of(tensor_map).upper) or ())


def _im2col_of(tensor_map: TensorMap) -> Any:
    return tensor_map.spec.im2col


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
    rounds: bool = False, byte_offset: int = 0,
) -> TensorMap:  # fmt: skip
    """The tensor map of a tensor, cached by content. The keys are the same as in `TensorDescriptor.from_tensor`."""
    tensor, block = tensor_of(base, shape, strides, byte_offset), tuple(block_shape)
    # Arrays of JAX and of others share dtypes, but not the launches with them, which the map's key stands for.
    dtype = ("jax", tensor.dtype) if tensor.library == "jax" else getattr(base, "dtype", tensor.dtype)
    key = (tensor.pointer, tensor.device, dtype, tensor.shape, tensor.strides, block, layout, padding, rounds)
    try:
        return _known[key]
    except (KeyError, TypeError):
        made = tiled(tensor, block, layout, padding, rounds)
    return keep(_known, key, made)
