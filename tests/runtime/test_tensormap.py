"""Tensor maps: every field of the driver's calls, against numbers worked out by hand."""

from __future__ import annotations

import ctypes

import pytest

from tests.runtime.fake_driver import CUresult, FakeDtype, FakeTensor
from weft.errors import DeviceError
from weft.layout import NVMMASharedLayout
from weft.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col
from weft.runtime import tensormap
from weft.runtime.tensormap import Spec

ADDRESS = 0x7F00_0000_1000


def encoded(cuda, shape, block, swizzle, dtype="float16", strides=None, **options):
    """The arguments of the one call that encodes the descriptor of such a tensor."""
    bits = {"float16": 16, "bfloat16": 16, "int16": 16, "uint16": 16, "float64": 64, "int64": 64, "uint64": 64}
    layout = NVMMASharedLayout(swizzle, bits.get(dtype, 8 if "8" in dtype else 32), len(block))
    tensor = FakeTensor(ADDRESS, FakeDtype(dtype), shape=shape, strides=strides)
    TensorDescriptor.from_tensor(tensor, block, layout, **options).tensor_map.encode()
    ((mode, arguments),) = cuda.encoded
    assert mode == "tiled"
    return arguments


@pytest.mark.parametrize(
    ("shape", "strides", "block", "swizzle", "expected"),
    [
        # (rank, innermost first: extents, strides in bytes, box), swizzle, promotion
        ((1000,), None, [512], 0, (1, [1000], [64], [256], "NONE", "L2_128B")),
        ((100, 64), (72, 1), [32, 16], 32, (2, [64, 100], [144], [16, 32], "32B", "L2_64B")),
        ((100, 64), None, [512, 64], 64, (2, [64, 100], [128], [32, 256], "64B", "L2_128B")),
        ((100, 640), None, [128, 256], 128, (2, [640, 100], [1280], [64, 128], "128B", "L2_256B")),
        ((7, 9, 24), None, [2, 4, 8], 0, (3, [24, 9, 7], [48, 432], [8, 4, 2], "NONE", "NONE")),
        ((3, 7, 9, 32), None, [1, 2, 8, 32], 64, (4, [32, 9, 7, 3], [64, 576, 4032], [32, 8, 2, 1], "64B", "L2_128B")),
        (
            (2, 3, 7, 9, 128), (30000, 8064, 1152, 128, 1), [1, 1, 4, 8, 128], 128,
            (5, [128, 9, 7, 3, 2], [256, 2304, 16128, 60000], [64, 8, 4, 1, 1], "128B", "L2_256B"),
        ),
    ],
)  # fmt: skip
def test_shapes_and_swizzles(cuda, shape, strides, block, swizzle, expected):
    data_type, rank, address, extents, byte_strides, box, steps, interleave, swizzled, promotion, fill = encoded(
        cuda, shape, block, swizzle, strides=strides
    )
    assert (rank, extents, byte_strides, box, swizzled, promotion) == expected
    assert (data_type, address, steps, interleave, fill) == ("FLOAT16", ADDRESS, [1] * rank, "NONE", "NONE")


@pytest.mark.parametrize(
    ("columns", "swizzle", "expected"),
    [
        (8, 0, "NONE"), (16, 32, "L2_64B"), (32, 64, "L2_128B"), (64, 128, "L2_256B"), (128, 128, "L2_256B"),
        (256, 128, "L2_256B"), (256, 64, "L2_128B"), (512, 128, "L2_128B"), (2048, 128, "L2_128B"), (1024, 32, "L2_64B"),
    ],
)  # fmt: skip
def test_promotion_to_l2(cuda, columns, swizzle, expected):
    """From the rows of boxes, and not beyond 128 bytes where a block's rows have a KiB or more."""
    assert encoded(cuda, (64, 4096), [8, columns], swizzle)[9] == expected


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("int8", "UINT8"), ("uint8", "UINT8"), ("float8_e4m3fn", "UINT8"), ("float8_e5m2", "UINT8"), ("int16", "UINT16"),
        ("uint16", "UINT16"), ("int32", "INT32"), ("uint32", "UINT32"), ("int64", "INT64"), ("uint64", "UINT64"),
        ("float16", "FLOAT16"), ("bfloat16", "BFLOAT16"), ("float32", "FLOAT32"), ("float64", "FLOAT64"),
    ],
)  # fmt: skip
def test_element_types(cuda, dtype, expected):
    assert encoded(cuda, (16, 64), [8, 16], 0, dtype)[0] == expected


def test_packed_fp4_is_counted_by_its_elements(cuda):
    """Extents and boxes in fp4, two to a byte of the tensor, strides in bytes; a box's row is 128 of them."""
    layout = NVMMASharedLayout(128, 8, 2, fp4_padded=True)
    tensor = FakeTensor(ADDRESS, FakeDtype("uint8"), shape=(48, 192))
    TensorDescriptor.from_tensor(tensor, [32, 128], layout).tensor_map.encode()
    ((_, arguments),) = cuda.encoded
    data_type, rank, _, extents, strides, box, _, _, swizzle, *_ = arguments
    assert (data_type, rank, extents, strides) == ("16U4_ALIGN16B", 2, [384, 48], [192])
    assert (box, swizzle) == ([128, 32], "128B")


def test_rows_that_are_gathered(cuda):
    """A box of one row, as wide as the swizzle."""
    _, _, _, extents, _, box, _, _, swizzle, *_ = encoded(cuda, (100, 256), [1, 128], 128)
    assert (extents, box, swizzle) == ([256, 100], [64, 1], "128B")


def test_padding(cuda):
    assert encoded(cuda, (16, 64), [8, 16], 0, padding="nan")[-1] == "NAN_REQUEST_ZERO_FMA"


def test_im2col(cuda):
    image = FakeTensor(ADDRESS, FakeDtype("float16"), shape=(2, 10, 12, 96))
    desc = TensorDescriptorIm2Col.from_tensor(
        image,
        [64, 64],
        NVMMASharedLayout(64, 16, 2),
        element_strides=[1, 2, 3, 1],
        pixel_box_lower_corner=[-1, -2],
        pixel_box_upper_corner=[3, 4],
    )
    desc.tensor_map.encode()
    ((mode, arguments),) = cuda.encoded
    assert mode == "im2col"
    # The driver counts spatial dimensions from the innermost, and takes channels (a swizzle's span of them) before pixels.
    assert arguments == (
        "FLOAT16", 4, ADDRESS, [96, 12, 10, 2], [192, 2304, 23040], (-2, -1), (4, 3), 32, 64, [1, 3, 2, 1],
        "NONE", "64B", "L2_128B", "NONE",
    )  # fmt: skip


def test_the_map_goes_where_it_is_told(cuda):
    memory = (ctypes.c_uint64 * 18)()
    tensormap.encode(Spec(ADDRESS, "int32", (64,), (), (64,), 0, "zero"), ctypes.addressof(memory) + 8)
    assert list(memory) == [0, ADDRESS, *[0xA5A5] * 15, 0]


def test_what_the_driver_refuses(cuda):
    cuda.results = [CUresult.CUDA_ERROR_ILLEGAL_ADDRESS]
    tensor_map = TensorDescriptor.from_tensor(FakeTensor(ADDRESS), [8], NVMMASharedLayout(0, 32, 1)).tensor_map
    with pytest.raises(DeviceError, match="cuTensorMapEncodeTiled"):
        tensor_map.encode()
    assert tensor_map.address == 0
