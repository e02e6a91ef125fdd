"""What authors read where views and tiles do not go together."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.errors.users import shown
from weft import language as gl
from weft.errors import LaunchError, LayoutError
from weft.language.nvidia.hopper import tma
from weft.nvidia.hopper import TensorDescriptor

LINE = gl.BlockedLayout([1], [32], [4], [0])
BLOCKED = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
NESTED = gl.Layout(((8, 8), (8, 16)), ((8, 1024), (1, 64)))


def view(*shape, layout=None, **options):
    return gl.LayoutTensor(np.zeros(shape, np.float32), layout, **options)


@weft.jit
def whole(x, layout: gl.constexpr):
    tile = gl.load(x, layout=layout)
    gl.store(x, tile)


@pytest.mark.parametrize(
    ("x", "shape", "advice"),
    [
        (view(100, 64), "[100, 64]", "gl.load(x.tile[64, 64](i, j))"),
        (view(48), "[48]", "gl.load(x.tile[32](i))"),
        (
            view(256, 128, layout=gl.Layout((gl.UNKNOWN, 128), (128, 1))),
            "[UNKNOWN, 128]",
            "gl.load(x.tile[64, 128](i, j))",
        ),
    ],
)
def test_a_view_that_is_no_tile(x, shape, advice):
    text = shown(lambda: whole[1](x, None), "bridge-sizes", "tile = gl.load(x, layout=layout)")
    assert f"gl.load of x, whose shape {shape} is not that of a tile" in text
    assert advice in text
    assert "masked=True" in text


@weft.jit
def vectors(x):
    gl.store(x.vectorize[1, 4](), 0)


def test_vectors():
    text = shown(lambda: vectors[1](view(64, 64)), "bridge-vectors", "gl.store(x.vectorize[1, 4](), 0)")
    assert "gl.store of x.vectorize[1, 4](), whose elements are vectors of 4 numbers" in text
    assert "before vectorize" in text


@weft.jit
def from_shared():
    mine = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(8, 4), address_space=gl.AddressSpace.SHARED)
    gl.load(mine)


@weft.jit
def from_local():
    mine = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(8, 4), address_space=gl.AddressSpace.LOCAL)
    gl.load(mine)


@pytest.mark.parametrize(
    ("kernel", "space", "advice"),
    [(from_shared, "shared", "smem.load(layout)"), (from_local, "local", "gl.from_fragment(view, shape, layout)")],
)
def test_other_memory(kernel, space, advice):
    text = shown(lambda: kernel[1](), "bridge-space", "gl.load(mine)")
    assert f"which is in {space} memory: tiles are loaded from global memory" in text
    assert advice in text


@weft.jit
def other_shape(x, y):
    part = gl.load(x.tile[16, 32](0, 0))
    gl.store(y.tile[32, 16](0, 0), part)


def test_a_tile_of_another_shape():
    text = shown(
        lambda: other_shape[1](view(64, 64), view(64, 64)), "bridge-shapes", "gl.store(y.tile[32, 16](0, 0), part)"
    )
    assert "'part' (a float32 tile [16, 32]) cannot be stored to y.tile[32, 16](0, 0), whose shape is [32, 16]" in text
    assert "view.tile[16, 32](i, j)" in text


@weft.jit
def layout_of_a_pointer(x, layout: gl.constexpr):
    gl.load(x + gl.arange(0, 128, layout), layout=layout)


def test_a_layout_for_addresses():
    array = np.zeros(128, np.float32)
    text = shown(lambda: layout_of_a_pointer[1](array, LINE), "bridge-layout-of-addresses")
    assert repr(LINE) in text
    assert "which is not a view: the loaded tile has the layout of its pointers" in text


def test_a_layout_that_does_not_fit():
    text = shown(lambda: whole[1](view(64, 64), LINE), "layout-rank", "tile = gl.load(x, layout=layout)", LayoutError)
    assert "[64, 64]" in text


# Descriptors on the host


def test_a_descriptor_of_an_array():
    array = np.zeros((8, 8))
    text = shown(lambda: TensorDescriptor.from_view(array, [8, 8]), "bridge-descriptor-view", kind=LaunchError)
    assert "TensorDescriptor.from_tensor" in text


def test_a_descriptor_of_a_view_as_of_an_array():
    layout = gl.NVMMASharedLayout.get_default_for([8, 8], gl.float32)
    text = shown(
        lambda: TensorDescriptor.from_tensor(view(64, 64), [8, 8], layout), "bridge-descriptor-tensor", kind=LaunchError
    )
    assert "TensorDescriptor.from_view(view, block_shape, layout)" in text


def test_a_descriptor_of_a_nested_view():
    nested = gl.LayoutTensor(np.zeros(64 * 128, np.float32), NESTED)
    text = shown(lambda: TensorDescriptor.from_view(nested, [8, 8]), "bridge-descriptor-nested", kind=LayoutError)
    assert "with layout (((8, 8), (8, 16)):((8, 1024), (1, 64))): along axis 0" in text
    assert TensorDescriptor.from_view(nested.tile[8, 8](1, 2), [8, 8]).strides == [8, 1]


def test_a_descriptor_of_vectors():
    text = shown(
        lambda: TensorDescriptor.from_view(view(64, 64).vectorize[1, 4](), [8, 8]),
        "bridge-descriptor-vectors",
        kind=LayoutError,
    )
    assert "vectors of 4 numbers" in text


@pytest.mark.parametrize(
    ("x", "code", "words"),
    [
        (view(64, 64).transpose(), "descriptor-inner-stride", ("stride 64",)),
        (view(64, 66), "descriptor-stride", ("264",)),
        (view(64, 64).tile[64, 1](0, 3), "descriptor-base", ()),
    ],
)
def test_strides_and_alignment_that_tma_does_not_take(x, code, words):
    text = shown(lambda: TensorDescriptor.from_view(x, [8, 8]), code)
    assert all(word in text for word in words), text


# Descriptors in kernels


@weft.jit
def with_a_shape(x):
    tma.make_tensor_descriptor(x, [64, 64], block_shape=[32, 32])


@weft.jit
def without_a_block(x):
    tma.make_tensor_descriptor(x)


@weft.jit
def pointer_alone(x):
    tma.make_tensor_descriptor(x, block_shape=[32, 32])


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (with_a_shape, "make_tensor_descriptor of x with a shape or strides of its own"),
        (without_a_block, "make_tensor_descriptor of x without a block_shape"),
        (pointer_alone, "make_tensor_descriptor of 'x' (a pointer<float32>) without shape, strides and block_shape"),
    ],
)
def test_arguments_of_a_descriptor(kernel, words):
    x = np.zeros((64, 64), np.float32)
    text = shown(lambda: kernel[1](x if kernel is pointer_alone else gl.LayoutTensor(x)), "bridge-descriptor-arguments")
    assert words in text
    assert "make_tensor_descriptor(view, block_shape=..., layout=...)" in text


@weft.jit
def described(x):
    tma.make_tensor_descriptor(x, block_shape=[8, 8])


@weft.jit
def described_vectors(x):
    tma.make_tensor_descriptor(x.vectorize[1, 4](), block_shape=[8, 8])


@weft.jit
def described_shared():
    mine = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(8, 8), address_space=gl.AddressSpace.SHARED)
    tma.make_tensor_descriptor(mine, block_shape=[8, 8])


def test_views_that_kernels_cannot_describe():
    nested = gl.LayoutTensor(np.zeros(64 * 128, np.float32), NESTED)
    line = "tma.make_tensor_descriptor(x, block_shape=[8, 8])"
    assert "along axis 0" in shown(lambda: described[1](nested), "bridge-descriptor-nested", line)
    assert "vectors of 4" in shown(lambda: described_vectors[1](view(64, 64)), "bridge-descriptor-vectors")
    assert "in shared memory" in shown(lambda: described_shared[1](), "bridge-descriptor-space")
    columns = gl.LayoutTensor(np.zeros(4096, np.float32), gl.Layout.col_major(64, 64))
    shown(lambda: described[1](columns), "async-make-stride", line)


# Fragments


@weft.jit
def open_fragment(x):
    tile = gl.load(x)
    part = gl.fragment(tile)
    part[0, 0] = 1


@weft.jit
def from_a_tile(x, layout: gl.constexpr):
    tile = gl.load(x, layout=layout)
    gl.from_fragment(tile, [64, 64], layout)


@weft.jit
def from_another(x, layout: gl.constexpr):
    part = gl.fragment(gl.load(x, layout=layout))
    gl.from_fragment(part, [32, 64], layout)


@weft.jit
def into_open(x, layout: gl.constexpr):
    part = gl.fragment(gl.load(x, layout=layout))
    gl.from_fragment(part, [64, 64], gl.CoalescedLayout())


def test_fragments():
    x = view(64, 64)
    text = shown(lambda: open_fragment[1](x), "bridge-fragment-open", "part = gl.fragment(tile)")
    assert "a fragment of 'tile' (a float32 tile [64, 64]), whose layout CoalescedLayout() is not resolved yet" in text
    assert "CoalescedLayout()" in shown(lambda: into_open[1](x, BLOCKED), "bridge-fragment-open")
    text = shown(lambda: from_a_tile[1](x, BLOCKED), "bridge-fragment-view")
    assert "got a float32 tile [64, 64]" in text
    text = shown(lambda: from_another[1](x, BLOCKED), "bridge-fragment-shape", kind=LayoutError)
    assert "has layout ((4, 8):(8, 1)), but of a tile [32, 64] in" in text
    assert "a thread holds 2 x 8 elements" in text
