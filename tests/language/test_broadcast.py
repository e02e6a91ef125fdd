"""Shapes and layouts that meet: what stretches, what is splat, and what is refused."""

from __future__ import annotations

import pytest

from tests.language.support import BLOCKED, MATRIX, mistake
from weft import language as gl
from weft.errors import LayoutError

ROWS, COLUMNS = gl.SliceLayout(1, MATRIX), gl.SliceLayout(0, MATRIX)
OTHER = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
AUTO = gl.AutoLayout()


def test_rows_meet_columns(kernel):
    i, j = gl.arange(0, 16, ROWS), gl.arange(0, 32, COLUMNS)
    result = i[:, None] + j[None, :]
    assert result.shape == [16, 32]
    assert result.layout == MATRIX
    assert kernel.names[2:] == ["tile.expand_dims", "tile.expand_dims", "tile.broadcast", "tile.broadcast", "arith.add"]


def test_nothing_is_stretched_without_need(kernel):
    _ = kernel.tile(shape=(16, 32)) + kernel.tile(shape=(16, 32))
    assert kernel.names == ["arith.add"]


def test_equal_layouts_may_be_spelled_differently(kernel):
    spelled = gl.SliceLayout(1, gl.BlockedLayout([1, 1], [32, 1], [4, 1], [1, 0]))
    x, y = kernel.tile(layout=BLOCKED), kernel.tile(layout=spelled)
    assert (x + y).layout == BLOCKED
    assert (y + x).layout == spelled
    assert kernel.names == ["arith.add", "arith.add"]


def test_different_layouts(kernel):
    x, y = kernel.tile(shape=(16, 32), name="left"), kernel.tile(shape=(16, 32), layout=OTHER, name="right")
    with mistake("tile-layout-mismatch") as found:
        _ = x + y
    assert isinstance(found.error, LayoutError)
    for text in ("'left'", "'right'", repr(MATRIX), repr(OTHER), f"gl.convert_layout(right, gl.{MATRIX!r})", "cost:"):
        assert text in found.text
    assert "shared memory" in found.text or "shuffle" in found.text


def test_different_layouts_that_stretch(kernel):
    with mistake("tile-layout-mismatch"):
        _ = kernel.tile(shape=(16, 1), layout=OTHER) + kernel.tile(shape=(16, 32))


def test_ranks(kernel):
    with mistake("tile-rank-mismatch") as found:
        _ = kernel.tile(shape=(16, 32)) + kernel.tile(shape=(32,), layout=COLUMNS, name="bias")
    assert "'bias'" in found.text and "x[None, :]" in found.text


def test_shapes(kernel):
    with mistake("tile-shape-mismatch") as found:
        _ = kernel.tile(shape=(16, 32)) + kernel.tile(shape=(16, 64))
    assert "dimension 1 is 32 in one and 64 in the other" in found.text


def test_an_auto_tile_takes_the_layout_it_meets(kernel):
    result = gl.arange(0, 128) + kernel.tile(gl.int32)
    assert kernel.names == ["tile.arange", "tile.set_layout", "arith.add"]
    assert result.layout == BLOCKED
    assert (gl.arange(0, 128) + 1).layout == AUTO


def test_auto_is_vaguer_than_coalesced(kernel):
    coalesced = gl.arange(0, 128, gl.CoalescedLayout())
    assert (gl.arange(0, 128) + coalesced).layout == gl.CoalescedLayout()
    assert (coalesced + kernel.tile(gl.int32)).layout == BLOCKED


def test_auto_tiles_stretch(kernel):
    x = gl.arange(0, 16)[:, None] * gl.arange(0, 32)[None, :]
    assert x.shape == [16, 32] and x.layout == AUTO
    y = x + kernel.tile(gl.int32, (16, 32))
    assert y.layout == MATRIX


def test_a_linear_tile_repeats_in_registers(kernel):
    x = kernel.tile(gl.int32, (128,))[:, None]
    assert isinstance(x.layout, gl.DistributedLinearLayout)
    wide = x.broadcast_to(128, 4)
    assert wide.shape == [128, 4]
    assert wide.handle.type.linear.in_size("register") == 4


def test_broadcast_gives_both(kernel):
    a, b = gl.broadcast(kernel.tile(gl.float16, (16, 1)), kernel.tile(gl.int32, (1, 32)))
    assert (a.shape, b.shape) == ([16, 32], [16, 32])
    assert (a.dtype, b.dtype) == (gl.float16, gl.int32)
    c, d = gl.broadcast(kernel.tile(), 1.0)
    assert c.shape == d.shape == [128]


@pytest.mark.parametrize("call", [lambda x: x.broadcast_to(16, 32), lambda x: gl.broadcast_to(x, [16, 32])])
def test_broadcast_to(kernel, call):
    x = kernel.tile(shape=(16, 1))
    assert call(x).shape == [16, 32]


def test_broadcast_to_what_does_not_fit(kernel):
    with mistake("layout-broadcast"):
        kernel.tile(shape=(16, 2)).broadcast_to(16, 32)
    with mistake("tile-rank-mismatch"):
        kernel.tile(shape=(16, 2)).broadcast_to(16)
    with mistake("layout-tile-shape"):
        kernel.tile(shape=(16, 1)).broadcast_to(16, 33)
