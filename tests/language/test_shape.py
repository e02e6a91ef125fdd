"""Making tiles, reshaping them, changing their layouts."""

from __future__ import annotations

import pytest

from tests.language.support import BLOCKED, MATRIX, building, mistake
from weft import language as gl

ROWS = gl.SliceLayout(1, MATRIX)
COLUMNS = gl.SliceLayout(0, MATRIX)


def test_arange(kernel):
    x = gl.arange(0, 128, layout=BLOCKED)
    assert (x.dtype, x.shape, x.layout, x.numel, len(x)) == (gl.int32, [128], BLOCKED, 128, 128)
    assert gl.arange(gl.constexpr(64), 128).layout == gl.AutoLayout()


@pytest.mark.parametrize(("start", "end"), [(0, 100), (5, 5), (8, 4)])
def test_arange_of_impossible_length(kernel, start, end):
    with mistake("tile-arange") as found:
        gl.arange(start, end)
    assert str(end - start) in found.text


def test_arange_of_run_time_bounds(kernel):
    with mistake("language-constexpr-needed"):
        gl.arange(0, kernel.scalar(gl.int32))


def test_layouts_are_checked_against_the_warps():
    with building(num_warps=8), mistake("layout-num-warps") as found:
        gl.arange(0, 128, BLOCKED)
    assert "num_warps=8" in found.text and repr(BLOCKED) in found.text


def test_layouts_are_checked_against_the_rank(kernel):
    with mistake("layout-rank"):
        gl.arange(0, 128, MATRIX)


def test_what_is_no_layout(kernel):
    with mistake("tile-not-a-layout"):
        gl.arange(0, 128, layout=[1, 32, 4])
    with mistake("tile-not-a-layout"):
        gl.zeros([128], gl.float32, gl.SwizzledSharedLayout(1, 1, 1, [0]))


def test_full(kernel):
    x = gl.full([16, 32], 1, gl.float16, MATRIX)
    assert kernel.last("arith.constant").attrs["value"] == 1.0
    assert x.shape == [16, 32] and x.dtype == gl.float16
    y = gl.full([16, 32], kernel.scalar(gl.int32), gl.float32, MATRIX)
    assert kernel.names[1:] == ["arith.cast", "tile.splat"]
    assert y.handle.type == gl.zeros_like(y).handle.type
    assert gl.full([], 3, gl.int64).is_scalar
    with mistake("layout-tile-shape"):
        gl.zeros([12], gl.float32)
    with mistake("language-scalar-needed"):
        gl.full([128], kernel.tile(), gl.float32)
    with mistake("language-dtype"):
        gl.zeros([128], float)
    with mistake("language-literal-range"):
        gl.full([128], 300, gl.uint8)


def test_like(kernel):
    x = kernel.tile(gl.float16, (16, 32))
    assert gl.zeros_like(x).handle.type == x.handle.type
    y = gl.full_like(x, 2, dtype=gl.int8, shape=[64], layout=BLOCKED)
    assert (y.dtype, y.shape, y.layout) == (gl.int8, [64], BLOCKED)
    with mistake("language-tile-needed"):
        gl.zeros_like(kernel.scalar(gl.int32))


def test_indexing_a_slice_gives_its_parent(kernel):
    x = kernel.tile(shape=(16,), layout=ROWS)
    assert x[:, None].layout == MATRIX
    assert x[:, None].shape == [16, 1]
    assert x[:] is x
    y = kernel.tile(shape=(32,), layout=COLUMNS)
    assert y[None, :].layout == y[None].layout == MATRIX
    cube = gl.BlockedLayout([1, 1, 1], [2, 4, 4], [4, 1, 1], [2, 1, 0])
    z = kernel.tile(shape=(8,), layout=gl.SliceLayout(0, gl.SliceLayout(2, cube)))
    assert z[None, :, None].layout == cube


def test_indexing_a_slice_the_wrong_way(kernel):
    with mistake("tile-expand-slice") as found:
        kernel.tile(shape=(16,), layout=ROWS)[None, :]
    assert f"gl.SliceLayout(0, gl.{MATRIX!r})" in found.text


@pytest.mark.parametrize("key", [0, slice(0, 4, 2), (slice(None), 3), Ellipsis])
def test_indexing_elements(kernel, key):
    with mistake("tile-index"):
        kernel.tile(shape=(16, 32))[key]


def test_indexing_ranges(kernel):
    layout = gl.BlockedLayout([1, 4], [32, 1], [4, 1], [1, 0])
    x = kernel.tile(shape=(128, 64), layout=layout)
    part = x[:, 8:24]
    assert (part.shape, part.layout) == ([128, 16], layout)
    assert kernel.last("tile.slice").attrs == {"offsets": (0, 8), "shape": (128, 16)}
    assert x[:, -16:].shape == gl.slice(x, [128, 16], [0, 48]).shape == [128, 16]
    assert kernel.last("tile.slice").attrs == {"offsets": (0, 48), "shape": (128, 16)}
    assert x[:, : gl.constexpr(4)].shape == [128, 4] and x[:, None, 0:4].shape == [128, 1, 4]
    assert x[:, :64] is x and x[:128] is x


def test_indexing_ranges_that_are_not_there(kernel):
    x = kernel.tile(shape=(16, 32))
    for key in (slice(0, 32), slice(-17, None), slice(4, 4), slice(8, 4)):
        with mistake("tile-slice"):
            x[key]
    with mistake("tile-index") as found:
        x[kernel.scalar(gl.int32) :]
    assert "known at compile time" in found.text
    with mistake("layout-slice"):
        x[:, :8]
    with mistake("tile-slice-rank"):
        gl.slice(x, [16], [0, 0])
    with mistake("layout-tile-shape"):
        x[:, :20]


def test_cat(kernel):
    layout = gl.BlockedLayout([1, 4], [32, 1], [4, 1], [1, 0])
    a, b = kernel.tile(gl.float16, (128, 16), layout), kernel.tile(gl.float32, (128, 16), layout)
    both = gl.cat(a, b, dim=-1)
    assert (both.shape, both.dtype, both.layout) == ([128, 32], gl.float32, layout)
    assert gl.cat(a, a).shape == [256, 16]
    with mistake("tile-cat"):
        gl.cat(a, kernel.tile(gl.float16, (128, 8), layout))
    with mistake("language-tile-needed"):
        gl.cat(a, 1)


def test_indexing_too_much(kernel):
    with mistake("tile-index-rank"):
        kernel.tile()[:, :]
    with mistake("language-tile-needed"):
        kernel.scalar(gl.int32)[None]


def test_expand_dims(kernel):
    x = kernel.tile(shape=(16,), layout=ROWS)
    assert gl.expand_dims(x, 1).layout == x.expand_dims(-1).layout == MATRIX
    assert x.expand_dims([1, 2]).shape == [16, 1, 1]
    with mistake("layout-axis"):
        x.expand_dims(3)


def test_reshape(kernel):
    x = kernel.tile(shape=(16, 32))
    assert x.reshape(512).shape == x.reshape([512]).shape == gl.reshape(x, (512,)).shape == x.ravel().shape == [512]
    assert gl.reshape(x, 4, 128).shape == [4, 128]
    assert x.reshape(16, 32) is x
    with mistake("layout-reshape"):
        x.reshape(16, 16)
    with mistake("layout-tile-shape"):
        x.reshape(0, 7)
    assert x.reshape(8, 2, 4, 8).shape == [8, 2, 4, 8] and kernel.tile(shape=(16, 96)).reshape(16, 12, 8).shape == [
        16,
        12,
        8,
    ]
    with mistake("language-tile-needed"):
        gl.reshape(kernel.scalar(gl.int32), 1)


def test_permute(kernel):
    x = kernel.tile(shape=(16, 32))
    for y in (x.T, x.trans(), x.permute(1, 0), gl.permute(x, [1, 0]), gl.trans(x, 1, 0)):
        assert y.shape == [32, 16]
        assert y.layout == gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1])
    with mistake("layout-order"):
        x.permute(0, 0)
    with mistake("tile-transpose"):
        _ = kernel.tile().T


def test_join_and_split(kernel):
    x = gl.join(kernel.tile(gl.float16), kernel.tile(gl.float32))
    assert x.shape == [128, 2] and x.dtype == gl.float32
    a, b = x.split()
    assert a.shape == b.shape == [128]
    assert kernel.names == ["arith.cast", "tile.join", "tile.split"]
    with mistake("layout-split-shape"):
        gl.split(kernel.tile(shape=(16, 32)))
    with mistake("layout-split"):
        gl.split(kernel.tile(shape=(16, 2), layout=gl.BlockedLayout([1, 1], [16, 2], [4, 1], [1, 0])))
    with mistake("language-tile-needed"):
        gl.join(1, 2)


def test_item(kernel):
    assert kernel.tile(gl.int8, (1,)).item().is_scalar
    with mistake("tile-item"):
        kernel.tile().item()


def test_convert_layout(kernel):
    x = kernel.tile(shape=(16, 32))
    target = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
    assert gl.convert_layout(x, target).layout == target
    assert kernel.names == ["tile.convert"]
    with mistake("tile-not-trivial") as found:
        gl.convert_layout(x, target, assert_trivial=True)
    assert "cost:" in found.text and repr(target) in found.text
    with mistake("layout-rank"):
        gl.convert_layout(x, BLOCKED)
    with mistake("language-tile-needed"):
        gl.convert_layout(kernel.scalar(gl.int32), BLOCKED)


def test_trivial_conversions(kernel):
    spelled = gl.SliceLayout(1, gl.BlockedLayout([1, 1], [32, 1], [4, 1], [1, 0]))
    assert gl.convert_layout(kernel.tile(), spelled, assert_trivial=True).layout == spelled
    assert gl.convert_layout(gl.arange(0, 128), BLOCKED, assert_trivial=True).layout == BLOCKED
    assert kernel.names == ["tile.convert", "tile.arange", "tile.set_layout"]


def test_set_auto_layout(kernel):
    assert gl.set_auto_layout(gl.arange(0, 128), BLOCKED).layout == BLOCKED
    with mistake("tile-layout-known"):
        gl.set_auto_layout(kernel.tile(), BLOCKED)


def test_to_linear_layout_works_on_the_host():
    linear = gl.to_linear_layout(BLOCKED, [128])
    assert linear == gl.DistributedLinearLayout([], [[1], [2], [4], [8], [16]], [[32], [64]], [], [128])
    shared = gl.to_linear_layout(gl.SwizzledSharedLayout(1, 1, 1, [1, 0]), [8, 8])
    assert isinstance(shared, gl.SharedLinearLayout)
    with mistake("tile-not-a-layout"):
        gl.to_linear_layout("blocked", [128])


def test_types_of_values(kernel):
    x = kernel.tile(gl.float16, (16, 32))
    assert x.type == gl.distributed_type(gl.float16, [16, 32], MATRIX)
    assert x.type.scalar == x.type.element_ty == gl.float16
    assert x.type.is_block()
    assert len({x.type, gl.distributed_type(gl.float16, [16, 32], gl.to_linear_layout(MATRIX, [16, 32]))}) == 1
    assert x.type != gl.distributed_type(gl.float16, [16, 32], gl.AutoLayout())
    assert kernel.scalar(gl.int8).type == gl.int8
    assert kernel.pointer(gl.int8).dtype.element_ty == gl.int8
