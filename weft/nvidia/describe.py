"""Tensor maps from an array, a block shape and a layout, checked against TMA's restrictions.

The driver refuses every invalid map with the same code (CUDA_ERROR_INVALID_VALUE), so each restriction is checked here with a
message of its own. The restrictions are those of the CUDA driver API (`cuTensorMapEncodeTiled`, `cuTensorMapEncodeIm2col`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from weft.errors import Row, fail
from weft.errors import asynchronous as errors
from weft.forms import library_of
from weft.layout import NVMMASharedLayout
from weft.layout.shared.tma import FP4_GRANULE, FP4_ROW, GRANULE, MOST_PIXELS, MOST_STRIDE_BYTES, box_of
from weft.runtime.arguments import HOST, array
from weft.runtime.descriptor import MOST_DIMS, Descriptor, Mode, TensorMap
from weft.runtime.dtypes import ITEMSIZE, dtype_name
from weft.runtime.specialise import MockTensor
from weft.runtime.tensormap import Im2Col, Spec

MOST_EXTENT = (1 << 31) - 1
"""Maximum extent. The hardware's limit is 2**32, but kernels use int32 extents."""
# The maximum traversal stride (CUDA Driver API, cuTensorMapEncodeIm2col, elementStrides).
MOST_STEP = 8
# Range of im2col corner offsets by the number of spatial dimensions: the hardware packs all of them into 32 bits.
CORNERS = {1: (-(1 << 15), (1 << 15) - 1), 2: (-(1 << 7), (1 << 7) - 1), 3: (-(1 << 4), (1 << 4) - 1)}
PADDINGS = ("zero", "nan")
# weft's names of types whose canonical names are those of ml_dtypes.
_NAMES = {"float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5"}


@dataclass(frozen=True, slots=True)
class Tensor:
    """The checked tensor of a descriptor. `pointer` and `device` are 0 and None for stand-ins; `strides` are in elements;
    `library` is that of `library_of`."""

    dtype: str
    pointer: int
    device: int | None
    library: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def stride_bytes(self) -> tuple[int, ...]:
        """Strides of all dimensions but the last, in bytes. The stride of an extent of 1 is never used, so it is replaced by
        a valid one."""
        size = ITEMSIZE[self.dtype]
        outer = zip(self.shape[:-1], self.strides[:-1], strict=True)
        return tuple(GRANULE if extent == 1 else stride * size for extent, stride in outer)


def tensor_of(base: Any, shape: Sequence[int], strides: Sequence[float], byte_offset: int = 0) -> Tensor:
    """The tensor at `byte_offset` from an array's address. Raises LaunchError: descriptor-tensor, -dtype, -rank, -strides,
    -extent, -base, -inner-stride, -stride."""
    dtype, pointer, device = _placed(base)
    pointer += byte_offset
    if dtype == "bool":
        raise fail(errors.DESCRIPTOR_DTYPE, dtype=dtype)
    if not 1 <= len(shape) <= MOST_DIMS:
        raise fail(errors.DESCRIPTOR_RANK, shape=list(shape))
    if len(strides) != len(shape):
        raise fail(errors.DESCRIPTOR_STRIDES, strides=list(strides), shape=list(shape))
    size = ITEMSIZE[dtype]
    if pointer % GRANULE:
        raise fail(errors.DESCRIPTOR_BASE, over=pointer % GRANULE, count=GRANULE // size)
    for dim, extent in enumerate(shape):
        if not 1 <= extent <= MOST_EXTENT:
            raise fail(errors.DESCRIPTOR_EXTENT, dim=dim, shape=list(shape), size=extent)
    _check_strides(shape, strides, size)
    return Tensor(dtype, pointer, device, library_of(base), tuple(map(index, shape)), tuple(map(int, strides)))


def _placed(base: Any) -> tuple[str, int, int | None]:
    """Element type, address and device of an array or its stand-in."""
    if isinstance(base, (MockTensor, str)):
        return dtype_name(base if isinstance(base, str) else base.dtype), 0, None
    found = array(base)
    if found is None:
        raise fail(errors.DESCRIPTOR_TENSOR, value=repr(base))
    return found.dtype, found.pointer, found.device


def _check_strides(shape: Sequence[int], strides: Sequence[float], size: int) -> None:
    """Check strides, the innermost first: if it is not 1, the tensor is often the transpose of one that TMA can read."""
    if strides[-1] != 1 and shape[-1] != 1:
        raise fail(errors.DESCRIPTOR_INNER_STRIDE, stride=strides[-1])
    for dim, (extent, stride) in enumerate(zip(shape[:-1], strides[:-1], strict=True)):
        nbytes = stride * size
        if extent != 1 and (nbytes % GRANULE or not 0 < nbytes < MOST_STRIDE_BYTES):
            raise fail(errors.DESCRIPTOR_OUTER_STRIDE, dim=dim, nbytes=nbytes, count=GRANULE // size)


def tiled(tensor: Tensor, block_shape: Sequence[int], layout: Any, padding: str, rounds: bool = False) -> TensorMap:
    """The tiled tensor map: TMA copies blocks of the tensor's rank, and with `rounds` rounds float32 to tf32.

    Raises LaunchError: descriptor-block-rank, -layout, -fp4, -fp4-step, -padding, -padding-nan, -round; LayoutError if block
    and layout do not match (see `weft.layout.shared.tma.check`).
    """
    block, rank = tuple(map(index, block_shape)), len(tensor.shape)
    if len(block) != rank:
        raise fail(errors.DESCRIPTOR_BLOCK_RANK, block=list(block), got=len(block), shape=list(tensor.shape), rank=rank)
    return _tensor_map(tensor, block, layout, padding, rounds, "tiled")


def im2col(
    tensor: Tensor,
    block_shape: Sequence[int],
    layout: Any,
    padding: str,
    element_strides: Sequence[int] | None,
    lower: Sequence[int] | None,
    upper: Sequence[int] | None,
    rounds: bool = False,
) -> TensorMap:
    """The im2col tensor map: TMA copies [pixels, channels] of a tensor of N, spatial dimensions and C.

    By default corners and steps cover every pixel of the image. Raises LaunchError: descriptor-im2col-rank, -im2col-block,
    -im2col-corner, -im2col-box, -im2col-steps, and what `tiled` raises.
    """
    block, rank = tuple(map(index, block_shape)), len(tensor.shape)
    if rank - 2 not in CORNERS:
        raise fail(errors.DESCRIPTOR_IM2COL_RANK, shape=list(tensor.shape))
    if len(block) != 2 or block[0] > MOST_PIXELS:
        raise fail(errors.DESCRIPTOR_IM2COL_BLOCK, block=list(block))
    corners = [
        _corner(name, corner, rank - 2)
        for name, corner in (("pixel_box_lower_corner", lower), ("pixel_box_upper_corner", upper))
    ]
    for dim, (low, high) in enumerate(zip(*corners, strict=True)):
        size = tensor.shape[1 + dim]
        if size + high - low < 1:
            raise fail(errors.DESCRIPTOR_IM2COL_BOX, lower=list(corners[0]), upper=list(corners[1]), dim=dim, size=size)
    steps = (1,) * rank if element_strides is None else tuple(map(index, element_strides))
    if len(steps) != rank or steps[-1] != 1 or not all(1 <= step <= MOST_STEP for step in steps):
        raise fail(errors.DESCRIPTOR_IM2COL_STEPS, steps=list(steps), rank=rank, example=[1] * rank)
    return _tensor_map(tensor, block, layout, padding, rounds, "im2col", Im2Col(corners[0], corners[1], steps))


def _corner(name: str, corner: Sequence[int] | None, count: int) -> tuple[int, ...]:
    low, high = CORNERS[count]
    offsets = (0,) * count if corner is None else tuple(map(index, corner))
    if len(offsets) != count or not all(low <= offset <= high for offset in offsets):
        example = [0] * count
        raise fail(
            errors.DESCRIPTOR_IM2COL_CORNER,
            name=name,
            corner=list(offsets),
            low=low,
            high=high,
            count=count,
            example=example,
        )
    return offsets


def _tensor_map(
    tensor: Tensor,
    block: tuple[int, ...],
    layout: Any,
    padding: str,
    rounds: bool,
    mode: Mode,
    im2col: Im2Col | None = None,
) -> TensorMap:
    dtype = tensor.dtype
    if not isinstance(layout, NVMMASharedLayout):
        raise _layout_error(errors.DESCRIPTOR_LAYOUT, layout, block, dtype)
    if padding not in PADDINGS:
        raise fail(errors.DESCRIPTOR_PADDING, padding=padding)
    # The driver has no fp8 data type: fp8 elements are encoded as UINT8, for which NaN fill does not exist.
    if padding == "nan" and (ITEMSIZE[dtype] == 1 or "float" not in dtype):
        raise fail(errors.DESCRIPTOR_PADDING_NAN, dtype=dtype)
    if layout.fp4_padded and (dtype not in ("uint8", "int8") or mode != "tiled"):
        raise fail(
            errors.DESCRIPTOR_FP4, layout=layout, what=_NAMES.get(dtype, dtype) if mode == "tiled" else f"mode {mode}"
        )
    if rounds and dtype != "float32":
        raise fail(errors.DESCRIPTOR_ROUND, dtype=_NAMES.get(dtype, dtype))
    box = box_of(block, layout, 8 * ITEMSIZE[dtype], im2col=mode == "im2col")
    if layout.fp4_padded:
        _check_fp4(tensor, box)
    spec = Spec(
        tensor.pointer, dtype, tensor.shape, tensor.stride_bytes, box, layout.swizzle_byte_width, padding, im2col,
        row_bytes=block[-1] * ITEMSIZE[dtype], fp4=layout.fp4_padded, rounds=rounds,
    )  # fmt: skip
    kind = Descriptor(dtype, len(tensor.shape), block, layout, mode)
    return TensorMap(kind, spec, tensor.strides, tensor.device, library=tensor.library)


def _check_fp4(tensor: Tensor, box: tuple[int, ...]) -> None:
    """Refuse packed fp4 that TMA cannot expand: 16U4_ALIGN16B copies multiples of 128 elements (64 bytes) of a row."""

    def demand(holds: bool, step: int, what: str, got: str, fix: str) -> None:
        if not holds:
            raise fail(errors.DESCRIPTOR_FP4_STEP, step=step, what=what, got=got, fix=fix)

    # Host memory is only simulated, and NumPy aligns it to 16 bytes, so its address is not checked.
    over = 0 if tensor.device == HOST else tensor.pointer % FP4_GRANULE
    demand(
        not over, FP4_GRANULE, "the address", f"{over} bytes past a multiple", "copy the tensor first: tensor.clone()"
    )
    for dim, nbytes in enumerate(tensor.stride_bytes):
        whole = nbytes % FP4_GRANULE == 0 or tensor.shape[dim] == 1
        demand(
            whole, FP4_GRANULE, f"the stride of dimension {dim}", f"{nbytes}", "allocate rows of a multiple of 64 bytes"
        )
    pad = "pad rows with zeros to a multiple of 64 bytes, 128 fp4"
    demand(tensor.shape[-1] % FP4_ROW == 0, FP4_ROW, "the last extent", f"{tensor.shape[-1]}", pad)
    wide = "give the layout swizzle_byte_width=128, and blocks rows of at least 64 bytes"
    demand(box[-1] == FP4_ROW, FP4_ROW, "the row of a box", f"{box[-1]}", wide)


def _layout_error(row: Row, layout: object, block: tuple[int, ...], dtype: str) -> Exception:
    return fail(row, layout=layout, block=list(block), dtype=_NAMES.get(dtype, dtype))
