"""Tensor descriptors on the host: what they say, what they refuse, and how little a known one costs."""

from __future__ import annotations

import ctypes
import functools
import gc
import random
import struct
import weakref
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.effort import calls
from tests.runtime import fake_driver
from tests.runtime.fake_driver import FakeArray, FakeDtype, FakeTensor, float16
from weft import language as gl
from weft.bounded import keep
from weft.errors import LaunchError, LayoutError, UserError
from weft.nvidia import hopper
from weft.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col
from weft.runtime import MockTensor
from weft.runtime.arguments import HOST
from weft.runtime.descriptor import Descriptor

PLAIN = gl.NVMMASharedLayout(0, 32, 2)
WIDE = gl.NVMMASharedLayout(128, 32, 2)
PLAIN_3D = gl.NVMMASharedLayout(0, 32, 3)
LOOK_UP = 12
"""Calls."""


@pytest.fixture(autouse=True)
def forget():
    hopper._known.clear()


def matrix(*shape, dtype=np.float32):
    """A host array whose address TMA takes."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    storage = np.zeros(count + 16, np.uint8)
    start = -storage.ctypes.data % 16
    return storage[start : start + count].view(dtype).reshape(shape)


class Exported:
    """An array of which only DLPack is known."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_descriptors_like_others():
    x = matrix(48, 96)[:, :90]
    desc = TensorDescriptor.from_tensor(x, [16, 32], WIDE, padding="nan")
    plain = replace(desc, layout=PLAIN)
    assert (plain.base, plain.layout, desc.layout) == (desc.base, PLAIN, WIDE)
    assert (plain.shape, plain.strides, plain.block_shape, plain.padding) == ([48, 90], [96, 1], [16, 32], "nan")
    image = TensorDescriptorIm2Col.from_tensor(
        np.zeros((2, 8, 8, 32), np.float32), [16, 32], WIDE, pixel_box_lower_corner=[-1, 0]
    )
    assert replace(image, padding="nan").pixel_box_lower_corner == image.pixel_box_lower_corner == [-1, 0]


def test_what_a_descriptor_says():
    x = matrix(48, 96)[:, :90]
    desc = TensorDescriptor.from_tensor(x, [16, 32], WIDE, padding="nan")
    assert desc.base is x
    assert (desc.shape, desc.strides, desc.block_shape) == ([48, 90], [96, 1], [16, 32])
    assert (desc.layout, desc.padding, desc.dtype, desc.mode) == (WIDE, "nan", np.float32, "tiled")
    assert "shape=[48, 90]" in repr(desc)
    spelled = TensorDescriptor(x, [48, 90], [96, 1], [16, 32], WIDE, "nan")
    assert spelled.tensor_map is desc.tensor_map


@pytest.mark.parametrize(
    ("array", "dtype", "device"),
    [
        (matrix(8, 8), "float32", HOST),
        (Exported(matrix(8, 8)), "float32", HOST),
        (FakeTensor(0x1000, shape=(8, 8), device=1), "float32", 1),
        (FakeArray(0x1000, "<f4", 1, (8, 8)), "float32", 1),
        (FakeArray(0x1000, "<f4", 0, (8, 8), (32, 4)), "float32", 0),
    ],
)
def test_arrays_of_every_kind(array, dtype, device):
    desc = TensorDescriptor.from_tensor(array, [8, 8], PLAIN)
    assert desc.tensor_map.kind == Descriptor(dtype, 2, (8, 8), PLAIN)
    assert (desc.shape, desc.strides, desc.tensor_map.device) == ([8, 8], [8, 1], device)


@pytest.mark.parametrize(
    "dtype",
    [
        "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
        ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
    ],
)  # fmt: skip
@pytest.mark.parametrize("rank", range(1, 6))
def test_every_rank_and_type(dtype, rank):
    x = matrix(*range(2, rank + 1), 64, dtype=dtype)
    layout = gl.NVMMASharedLayout(0, 8 * x.itemsize, rank)
    desc = TensorDescriptor.from_tensor(x, [2] * (rank - 1) + [16], layout)
    assert desc.tensor_map.kind.rank == rank
    assert desc.tensor_map.spec.pointer == x.ctypes.data
    assert desc.tensor_map.spec.strides == x.strides[:-1]


def test_an_extent_of_one_has_no_stride():
    x = matrix(4, 8)[:1, :].reshape(1, 8)
    x = np.lib.stride_tricks.as_strided(x, (1, 8), (12, 4))
    desc = TensorDescriptor.from_tensor(x, [1, 8], PLAIN)
    assert desc.strides == [3, 1]
    assert desc.tensor_map.spec.strides == (16,)


# Mistakes


def refused(code: str, make, kind: type[UserError] = LaunchError) -> UserError:
    with pytest.raises(kind) as caught:
        make()
    assert caught.value.code == code
    assert caught.value.fix
    return caught.value


def of(*shape, strides=None, block=None, layout=PLAIN, pointer=0x1000, dtype=None, **options):
    """Make the descriptor of a device tensor with these properties."""
    strides = fake_driver.contiguous(shape) if strides is None else strides
    tensor = FakeTensor(pointer, dtype or fake_driver.float32, shape=shape, strides=strides)
    return lambda: TensorDescriptor.from_tensor(tensor, [8] * len(shape) if block is None else block, layout, **options)


def fp4(*shape, block=(8, 64), swizzle=128, **options):
    """Make the descriptor of packed fp4 that takes twice its room in shared memory."""
    layout = gl.NVMMASharedLayout(swizzle, 8, 2, fp4_padded=True)
    return of(*shape, block=list(block), layout=layout, dtype=FakeDtype("uint8"), **options)


@pytest.mark.parametrize(
    ("code", "make", "text"),
    [
        ("descriptor-tensor", lambda: TensorDescriptor.from_tensor(3.5, [8], PLAIN), "3.5"),
        ("descriptor-tensor", lambda: TensorDescriptor.from_tensor(MockTensor("fp32"), [8], PLAIN), "MockTensor"),
        ("descriptor-tensor", lambda: TensorDescriptor(None, [8], [1], [8], PLAIN), "None"),
        ("descriptor-dtype", of(8, 16, dtype=FakeDtype("bool")), "bool"),
        ("descriptor-rank", of(2, 2, 2, 2, 2, 4), "[2, 2, 2, 2, 2, 4]"),
        ("descriptor-rank", of(), "[]"),
        ("descriptor-strides", lambda: TensorDescriptor(matrix(8, 8), [8, 8], [1], [8, 8], PLAIN), "[1]"),
        ("descriptor-extent", of(8, 0), "dimension 1"),
        ("descriptor-extent", of(2**31, 4), "2147483648"),
        ("descriptor-base", of(8, 8, pointer=0x1004), "4 bytes"),
        ("descriptor-inner-stride", of(8, 8, strides=(64, 2)), "stride 2"),
        ("descriptor-inner-stride", of(8, 8, strides=(1, 8)), "stride 8"),
        ("descriptor-stride", of(8, 6), "24 bytes"),
        ("descriptor-stride", of(8, 8, strides=(0, 1)), "0 bytes"),
        ("descriptor-stride", of(8, 8, strides=(-8, 1)), "-32 bytes"),
        ("descriptor-stride", of(8, 8, strides=(2**38, 1)), "1099511627776 bytes"),
        ("descriptor-block-rank", of(8, 8, block=[8]), "block_shape [8]"),
        ("descriptor-layout", of(8, 8, layout=gl.SwizzledSharedLayout(1, 1, 1, [1, 0])), "SwizzledSharedLayout"),
        ("descriptor-layout", of(8, 8, layout=None), "None"),
        ("descriptor-layout", of(8, 8, layout=[128]), "[128]"),
        ("descriptor-fp4", of(8, 8, layout=gl.NVMMASharedLayout(0, 8, 2, fp4_padded=True)), "is of float32"),
        ("descriptor-fp4-step", fp4(8, 64, pointer=0x1010), "the address is 16 bytes past a multiple"),
        ("descriptor-fp4-step", fp4(8, 64, strides=(80, 1)), "the stride of dimension 0 is 80"),
        ("descriptor-fp4-step", fp4(8, 96), "by 64 bytes, but the last extent is 96"),
        ("descriptor-fp4-step", fp4(8, 64, block=[8, 32], swizzle=64), "the row of a box is 32"),
        ("descriptor-padding", of(8, 8, padding="one"), "'one'"),
        ("descriptor-padding-nan", of(8, 8, dtype=FakeDtype("int32"), padding="nan"), "int32"),
        (
            "descriptor-padding-nan",
            of(
                8,
                16,
                block=[8, 16],
                dtype=FakeDtype("float8_e5m2"),
                layout=gl.NVMMASharedLayout(0, 8, 2),
                padding="nan",
            ),
            "float8_e5m2",
        ),
    ],
)
def test_what_tma_cannot_describe(code, make, text):
    assert text in refused(code, make).message


def test_a_stride_of_no_whole_element():
    record = np.zeros(16, np.dtype([("a", np.float32), ("b", np.int16)], align=False))
    assert (
        "1.5"
        in refused("descriptor-inner-stride", lambda: TensorDescriptor.from_tensor(record["a"], [16], PLAIN)).message
    )


def test_the_fix_names_a_layout():
    other = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    for dtype, name in ((float16, "float16"), (FakeDtype("float8_e4m3fn"), "float8e4nv")):
        error = refused("descriptor-layout", of(8, 32, block=[8, 32], layout=other, dtype=dtype))
        assert error.fix == f"write gl.NVMMASharedLayout.get_default_for([8, 32], gl.{name})"
        assert hasattr(gl, name)


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("layout-tma-element", of(8, 16, dtype=float16)),
        ("layout-tma-inner", of(8, 8, block=[8, 2])),
        ("layout-tma-transposed", of(8, 8, layout=gl.NVMMASharedLayout(0, 32, 2, transposed=True))),
        ("layout-swizzle-fit", of(8, 64, block=[8, 8], layout=WIDE)),
        ("layout-rank", of(8, 64, layout=PLAIN_3D)),
        ("layout-tile-shape", of(8, 64, block=[8, 20])),
        ("layout-tma-row-end", of(8, 64, block=[8, 24])),
    ],
)
def test_blocks_and_layouts_that_do_not_fit(code, make):
    refused(code, make, UserError)


# im2col

IMAGE = FakeTensor(0x1000, shape=(2, 10, 12, 64))


def column(**options):
    arguments = {"block_shape": [32, 16], "layout": PLAIN, **options}
    return lambda: TensorDescriptorIm2Col.from_tensor(IMAGE, **arguments)


def test_what_an_im2col_descriptor_says():
    desc = column(pixel_box_lower_corner=[-1, -2], pixel_box_upper_corner=[0, 1], element_strides=[1, 2, 3, 1])()
    assert (desc.mode, desc.shape, desc.block_shape) == ("im2col", [2, 10, 12, 64], [32, 16])
    assert (desc.pixel_box_lower_corner, desc.pixel_box_upper_corner) == ([-1, -2], [0, 1])
    assert desc.element_strides == [1, 2, 3, 1]
    assert desc.tensor_map.kind == Descriptor("float32", 4, (32, 16), PLAIN, "im2col")
    assert column()().element_strides == [1, 1, 1, 1]
    assert column()().pixel_box_lower_corner == [0, 0]


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("descriptor-im2col-rank", lambda: TensorDescriptorIm2Col.from_tensor(matrix(8, 8), [8, 8], PLAIN)),
        (
            "descriptor-round",
            lambda: TensorDescriptor.from_tensor(
                FakeTensor(0x1000, FakeDtype("int32"), shape=(16, 16)), [8, 8], PLAIN, round_f32_to_tf32=True
            ),
        ),
        ("descriptor-im2col-block", column(block_shape=[1, 32, 16])),
        ("descriptor-im2col-block", column(block_shape=[2048, 16])),
        ("descriptor-im2col-corner", column(pixel_box_lower_corner=[0])),
        ("descriptor-im2col-corner", column(pixel_box_upper_corner=[0, 128])),
        ("descriptor-im2col-box", column(pixel_box_lower_corner=[0, 12])),
        ("descriptor-im2col-box", column(pixel_box_upper_corner=[-10, 0])),
        ("descriptor-im2col-steps", column(element_strides=[1, 1, 1])),
        ("descriptor-im2col-steps", column(element_strides=[1, 9, 1, 1])),
        ("descriptor-im2col-steps", column(element_strides=[1, 1, 1, 2])),
    ],
)
def test_what_im2col_cannot_describe(code, make):
    refused(code, make)


# Memoisation


def test_equal_content_shares_one_map():
    x = FakeTensor(0x1000, shape=(64, 64))
    first = TensorDescriptor.from_tensor(x, [8, 8], PLAIN)
    again = TensorDescriptor.from_tensor(FakeTensor(0x1000, shape=(64, 64)), (8, 8), gl.NVMMASharedLayout(0, 32, 2))
    assert again is not first
    assert again.tensor_map is first.tensor_map
    assert first.base is x


def test_what_makes_another_map():
    """Each field of the content counts."""
    made = [
        make().tensor_map
        for make in (
            of(64, 64),
            of(64, 64, pointer=0x2000),
            of(64, 32),
            of(64, 64, strides=(128, 1)),
            of(64, 64, block=[8, 16]),
            of(64, 64, layout=gl.NVMMASharedLayout(32, 32, 2)),
            of(64, 64, padding="nan"),
            of(64, 64, dtype=FakeDtype("int32")),
            lambda: TensorDescriptor.from_tensor(FakeTensor(0x1000, device=1, shape=(64, 64)), [8, 8], PLAIN),
            lambda: TensorDescriptor.from_tensor(FakeArray(0x1000, shape=(64, 64)), [8, 8], PLAIN),
        )
    ]
    assert len(set(map(id, made))) == len(made)


def test_a_known_map_is_what_a_fresh_one_would_be():
    """However memory is given out again, in other shapes and types, a descriptor describes the tensor it was made of."""
    draw = random.Random(0)
    for _ in range(300):
        shape = draw.choice([(16, 16), (16, 32), (32, 16)])
        strides = draw.choice([None, (64, 1)])
        dtype = draw.choice([fake_driver.float32, FakeDtype("int32")])
        x = FakeTensor(draw.choice([0x1000, 0x2000]), dtype, draw.randrange(2), shape, strides)
        block = draw.choice([[8, 8], [16, 16]])
        rounds = draw.random() < 0.5 and dtype.name == "float32"
        desc = TensorDescriptor.from_tensor(x, block, PLAIN, round_f32_to_tf32=rounds)
        spec = desc.tensor_map.spec
        assert desc.round_f32_to_tf32 is spec.rounds is rounds
        assert (spec.pointer, spec.shape, desc.tensor_map.strides) == (x.pointer, x.shape, x.stride())
        assert (spec.dtype, desc.block_shape, desc.tensor_map.device) == (dtype.name, block, x.get_device())


def test_the_table_keeps_no_array_alive_and_is_bounded(monkeypatch):
    monkeypatch.setattr(hopper, "keep", functools.partial(keep, most=32))
    x = FakeTensor(0x1000, shape=(64, 64))
    gone = weakref.ref(x)
    desc = TensorDescriptor.from_tensor(x, [8, 8], PLAIN)
    del x
    gc.collect()
    assert gone() is desc.base
    del desc
    gc.collect()
    assert gone() is None
    for pointer in range(0x1000, 0x1000 + 16 * 40, 16):
        of(64, 64, pointer=pointer)()
    assert 0 < len(hopper._known) <= 32


def test_a_known_tensor_costs_a_look_up():
    """A launch has a few microseconds, and a host may describe three tensors for each."""
    x, block = FakeTensor(0x1000, shape=(64, 64)), [8, 8]
    assert calls(lambda: TensorDescriptor.from_tensor(x, block, PLAIN)) < LOOK_UP


def test_tensors_of_pytorch(torch):
    """Views have addresses and strides of their own; a tensor at the place of another is not taken for it."""
    x = torch.zeros(64, 64, dtype=torch.bfloat16)
    layout = gl.NVMMASharedLayout(0, 16, 2)
    views = (x, x[8:], x[:, 8:], x.view(128, 32), x.view(torch.float16), x[:32, :32])
    maps = [TensorDescriptor.from_tensor(view, [8, 8], layout).tensor_map for view in views]
    for view, found in zip(views, maps, strict=True):
        assert (found.spec.pointer, found.shape, found.strides) == (view.data_ptr(), view.shape, view.stride())
        assert f"torch.{found.kind.dtype}" == str(view.dtype)
        assert found.device == HOST
        assert TensorDescriptor.from_tensor(view, [8, 8], layout).tensor_map is found
    assert len(set(map(id, maps))) == len(maps)
    assert TensorDescriptor(x, x.shape, x.stride(), [8, 8], layout).tensor_map is maps[0]
    assert TensorDescriptor.from_tensor(torch.nn.Parameter(x), [8, 8], layout).tensor_map is maps[0]


# Memory


@pytest.mark.parametrize("rank", range(1, 6))
def test_the_memory_of_the_parameters(monkeypatch, rank):
    fake_driver.install_driver(monkeypatch)
    shape = (3, 5, 7, 11, 16)[5 - rank :]
    layout = gl.NVMMASharedLayout(0, 32, rank)
    tensor_map = of(*shape, block=[1] * (rank - 1) + [16], layout=layout)().tensor_map
    assert tensor_map.address == 0
    start = tensor_map.encode()
    assert start == tensor_map.address == tensor_map.encode()
    assert start % 64 == 0
    memory = ctypes.string_at(start, 192)
    assert struct.unpack_from("<16Q", memory) == (0x1000, *[0xA5A5] * 15)
    assert struct.unpack_from(f"<{rank}i", memory, 128) == shape
    assert struct.unpack_from(f"<{rank}q", memory, 152) == fake_driver.contiguous(shape)
    fake_driver.forget_devices()


def test_blocks_may_be_assigned():
    """As hooks of autotuners do: the map is made and checked when a launch asks for it."""
    x = matrix(64, 64)
    desc = TensorDescriptor.from_tensor(x, [8, 8], PLAIN)
    desc.block_shape = [16, 32]
    desc.layout = WIDE
    assert (desc.block_shape, desc.layout, desc.shape, desc.padding) == ([16, 32], WIDE, [64, 64], "zero")
    assert "block_shape=[16, 32]" in repr(desc)
    assert desc.tensor_map is TensorDescriptor.from_tensor(x, [16, 32], WIDE).tensor_map
    assert replace(desc, padding="nan").padding == "nan"
    desc.block_shape = [16, 3]
    refused("layout-tile-shape", lambda: desc.tensor_map, LayoutError)
    desc.block_shape = [16, 32]
    assert desc.tensor_map.kind.block_shape == (16, 32)
    with pytest.raises(AttributeError, match="no attribute 'extents'"):
        _ = desc.extents


def test_a_block_of_ones_stands_for_one_to_come():
    x = matrix(64, 64)
    desc = TensorDescriptor.from_tensor(x, [1, 1], PLAIN)
    assert (desc.block_shape, desc.shape, desc.strides, desc.dtype) == ([1, 1], [64, 64], [64, 1], np.float32)
    assert "block_shape=[1, 1]" in repr(desc) and not desc.round_f32_to_tf32
    refused("layout-tma-inner", lambda: desc.tensor_map, LayoutError)
    desc.block_shape = [8, 8]
    assert desc.tensor_map is TensorDescriptor.from_tensor(x, [8, 8], PLAIN).tensor_map


def test_blocks_of_images_may_be_assigned():
    image = matrix(2, 8, 8, 32)
    desc = TensorDescriptorIm2Col.from_tensor(image, [1, 1], PLAIN, element_strides=[1, 2, 2, 1])
    assert desc.element_strides == [1, 2, 2, 1] and desc.padding == "zero"
    desc.block_shape = [16, 32]
    desc.layout = WIDE
    same = TensorDescriptorIm2Col.from_tensor(image, [16, 32], WIDE, element_strides=[1, 2, 2, 1])
    assert desc.tensor_map.spec == same.tensor_map.spec and desc.pixel_box_lower_corner == same.pixel_box_lower_corner
