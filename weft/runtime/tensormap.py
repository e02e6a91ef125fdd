"""Tensor maps (`CUtensorMap`): the driver encodes a tensor and a box, and TMA reads the result during a copy.

A map is 128 opaque bytes at an address that is a multiple of 64 (CUDA driver API, Tensor Map Object Management). Dimensions
here are outermost first, as everywhere in weft; the driver's arrays start at the innermost.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from weft.runtime import driver
from weft.runtime.dtypes import ITEMSIZE

Padding = Literal["zero", "nan"]
BYTES = 128
ALIGNMENT = 64

_DATA_TYPES = {
    "int8": "UINT8", "uint8": "UINT8", "float8_e4m3fn": "UINT8", "float8_e5m2": "UINT8",
    "int16": "UINT16", "uint16": "UINT16", "float16": "FLOAT16", "bfloat16": "BFLOAT16",
    "int32": "INT32", "uint32": "UINT32", "float32": "FLOAT32",
    "int64": "INT64", "uint64": "UINT64", "float64": "FLOAT64",
}  # fmt: skip
"""The driver's names of element types. Signedness matters only to TMA reductions, which do not support 8 and 16-bit
integers."""
_FP4 = "16U4_ALIGN16B"
_TF32 = "TFLOAT32"
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}
# L2 promotion: the bytes that an L2 miss fetches from DRAM, by the bytes of a box's rows. For long rows the following boxes
# fetch the rest anyway: measured on an H200, 256 bytes gain 1 % with rows of 256 and 512 bytes, and lose 0.5 to 0.7 % with rows
# of 2 KiB and more.
_L2_PROMOTIONS = ((128, "L2_256B"), (64, "L2_128B"), (32, "L2_64B"), (0, "NONE"))
_LONG_ROW_BYTES = 1024
_LONG_ROW_PROMOTION = "L2_128B"
_FILLS = {"zero": "NONE", "nan": "NAN_REQUEST_ZERO_FMA"}


@dataclass(frozen=True, slots=True)
class Im2Col:
    """Parameters of an im2col map: corners of the pixel box, one offset per spatial dimension, and a step per dimension."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spec:
    """Contents of a map.

    `pointer`: address of element 0. `dtype`: canonical name. `strides`: in bytes, of all dimensions but the last. `box`:
    extents that one instruction copies, in elements (im2col: pixels and channels). `swizzle`: its span in bytes, 0 for none.
    `row_bytes`: size of a row of the whole block, which may consist of several boxes. `fp4`: each byte is a pair of fp4; the
    driver counts single fp4 elements, and 8 bytes of them occupy 16 in shared memory (16U4_ALIGN16B). `rounds`: loads round
    float32 to tf32.
    """

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    padding: Padding
    im2col: Im2Col | None = None
    row_bytes: int = 0
    fp4: bool = False
    rounds: bool = False


def encode(spec: Spec, into: int) -> None:
    """Have the driver write a map to an address. Raises DeviceError (device-driver-error) for a tensor that it refuses."""
    cuda = driver.bindings()

    def words(values: Sequence[int]) -> list[Any]:
        return [cuda.cuuint32_t(value) for value in reversed(values)]

    def long_words(values: Sequence[int]) -> list[Any]:
        return [cuda.cuuint64_t(value) for value in reversed(values)]

    # A tensor of one dimension has no outer stride, but the driver call takes an array, so it gets a dummy.
    strides = spec.strides or (ALIGNMENT,)
    rank, tensor = len(spec.shape), (spec.pointer, long_words(_elements(spec, spec.shape)), long_words(strides))
    kind = _FP4 if spec.fp4 else _TF32 if spec.rounds else _DATA_TYPES[spec.dtype]
    data_type = getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}")
    if spec.im2col is None:
        steps = words((1,) * rank)
        box = words(_elements(spec, spec.box))
        function, sizes = "cuTensorMapEncodeTiled", (box,)
    else:
        (pixels, channels), corners = spec.box, (spec.im2col.lower[::-1], spec.im2col.upper[::-1])
        steps = words(spec.im2col.steps)
        function, sizes = "cuTensorMapEncodeIm2col", (*corners, channels, pixels)
    made = driver.call_for(spec.pointer, function, data_type, rank, *tensor, *sizes, steps, *_modes(spec))
    ctypes.memmove(into, int(made.getPtr()), BYTES)


def _elements(spec: Spec, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes in the driver's elements."""
    return (*sizes[:-1], 2 * sizes[-1]) if spec.fp4 else sizes


def _modes(spec: Spec) -> tuple[Any, ...]:
    """Interleave, swizzle, promotion to L2 and out-of-bounds fill, as the driver's enumerations."""
    cuda = driver.bindings()
    return (
        cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(cuda.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[spec.swizzle]}"),
        getattr(cuda.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{_promotion(spec)}"),
        getattr(cuda.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{_FILLS[spec.padding]}"),
    )


def _promotion(spec: Spec) -> str:
    box_bytes = spec.box[-1] * ITEMSIZE[spec.dtype]
    wanted = next(name for least, name in _L2_PROMOTIONS if box_bytes >= least)
    long = spec.row_bytes >= _LONG_ROW_BYTES and wanted == "L2_256B"
    return _LONG_ROW_PROMOTION if long else wanted
