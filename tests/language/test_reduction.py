"""Reductions, scans and functions of elements: regions, result types and layouts."""

from __future__ import annotations

import pytest

from tests.language.support import BLOCKED, MATRIX, jit, mistake
from weft import language as gl


def names(region):
    return [op.name for op in region.ops]


@jit
def product(a, b):
    return a * b


@jit
def swap(a, i, b, j):
    return b, a


def test_reduce_inlines_the_combine_function(kernel):
    x = kernel.tile(gl.float32, (16, 32))
    result = gl.reduce(x, 1, product)
    op = kernel.last("tile.reduce")
    assert op.attrs == {"axis": 1, "in_order": False}
    assert names(op.regions[0]) == ["arith.mul", "control.yield"]
    assert result.shape == [16] and result.layout == gl.SliceLayout(1, MATRIX)


def test_reduce_takes_functions_of_the_language(kernel):
    gl.reduce(kernel.tile(), 0, gl.maximum)
    assert names(kernel.last("tile.reduce").regions[0]) == ["arith.max", "control.yield"]


def test_reduce_several(kernel):
    x, y = kernel.tile(gl.float32, (16, 32)), kernel.tile(gl.float32, (16, 32))
    a, b = gl.reduce((x, y), -1, swap)
    region = kernel.last("tile.reduce").regions[0]
    assert [arg.type.element for arg in region.args] == [gl.float32] * 4
    assert a.shape == b.shape == [16]
    yielded = list(region.terminator.uses)
    assert yielded == [region.args[2], region.args[0]]


def test_reduce_to_a_scalar(kernel):
    assert gl.sum(kernel.tile(), 0).is_scalar
    assert gl.sum(kernel.tile(gl.float32, (16, 32))).is_scalar
    assert kernel.names == ["tile.reduce", "tile.reshape", "tile.reduce"]


def test_keep_dims(kernel):
    x = kernel.tile(gl.float32, (16, 32))
    row = x.sum(1, keep_dims=True)
    assert row.shape == [16, 1] and row.layout == MATRIX
    assert (x - row).shape == [16, 32]
    assert x.sum(keep_dims=True).shape == [1, 1]
    assert kernel.tile().max(0, keep_dims=True).shape == [1]


@pytest.mark.parametrize(
    ("element", "result"),
    [
        (gl.int8, gl.int32),
        (gl.uint16, gl.uint32),
        (gl.int1, gl.int32),
        (gl.int64, gl.int64),
        (gl.float16, gl.float16),
        (gl.bfloat16, gl.bfloat16),
        (gl.float8e5, gl.float32),
    ],
)
def test_types_of_sums(kernel, element, result):
    assert gl.sum(kernel.tile(element), 0).dtype == result
    assert gl.cumsum(kernel.tile(element)).dtype == result
    assert gl.sum(kernel.tile(element), 0, dtype=gl.float64).dtype == gl.float64


@pytest.mark.parametrize(
    ("element", "result"),
    [(gl.int8, gl.int32), (gl.uint64, gl.uint64), (gl.float16, gl.float32), (gl.float32, gl.float32)],
)
def test_types_of_extremes(kernel, element, result):
    assert gl.max(kernel.tile(element), 0).dtype == result
    assert kernel.tile(element).min(0).dtype == result


def test_positions(kernel):
    x = kernel.tile(gl.float32, (16, 32))
    value, index = gl.max(x, 1, return_indices=True)
    assert (value.dtype, index.dtype) == (gl.float32, gl.int32)
    assert index.shape == [16] and index.layout == gl.SliceLayout(1, MATRIX)
    region = kernel.last("tile.reduce").regions[0]
    assert [op.attrs.get("predicate") for op in region.ops if op.name == "arith.cmp"] == ["gt", "eq", "lt"]
    arange = kernel.ops[0]
    assert arange.attrs == {"start": 0, "end": 32, "layout": gl.SliceLayout(0, MATRIX)}


def test_positions_of_any_equal_element(kernel):
    index = gl.argmin(kernel.tile(gl.float32, (16, 32)), 0, tie_break_left=False)
    region = kernel.last("tile.reduce").regions[0]
    assert [op.attrs.get("predicate") for op in region.ops if op.name == "arith.cmp"] == ["lt"]
    assert index.shape == [32]
    assert kernel.tile(gl.int8).argmax(0, keep_dims=True).shape == [1]


def test_positions_in_an_auto_tile(kernel):
    assert gl.argmax(gl.arange(0, 16)[:, None] + gl.arange(0, 32)[None, :], 1).layout == gl.SliceLayout(
        1, gl.AutoLayout()
    )


def test_positions_need_an_axis(kernel):
    with mistake("tile-index-axis"):
        gl.max(kernel.tile(), return_indices=True)


def test_bit_reductions(kernel):
    assert gl.xor_sum(kernel.tile(gl.int8), 0).dtype == gl.int8
    assert gl.reduce_or(kernel.tile(gl.int1), 0).dtype == gl.int1
    with mistake("language-integer-needed"):
        gl.xor_sum(kernel.tile(gl.float32), 0)


def test_mistakes_in_reductions(kernel):
    x = kernel.tile(gl.float32, (16, 32))
    with mistake("layout-axis"):
        gl.sum(x, 2)
    with mistake("language-tile-needed"):
        gl.sum(kernel.scalar(gl.float32), 0)
    with mistake("tile-combine-function") as found:
        gl.reduce(x, 0, lambda a, b: a + b)
    assert "@weft.jit" in found.text
    with mistake("tile-combine-count"):
        gl.reduce(x, 0, jit(lambda a, b: (a, b)))
    with mistake("tile-combine-result") as found:
        gl.reduce(x, 0, jit(lambda a, b: a < b))
    assert "float32" in found.text
    with mistake("tile-layout-mismatch"):
        gl.reduce((x, kernel.tile(shape=(16, 32), layout=gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0]))), 0, swap)
    with mistake("language-dtype"):
        gl.sum(x, 0, dtype="float32")


def test_a_constant_result_takes_the_element_type(kernel):
    gl.reduce(kernel.tile(gl.float16), 0, jit(lambda a, b: 1))
    assert kernel.last("tile.reduce").regions[0].ops[0].attrs["value"] == 1.0


def test_scans(kernel):
    x = kernel.tile(gl.float32, (16, 32))
    result = gl.associative_scan(x, 1, product, reverse=True)
    assert kernel.last("tile.scan").attrs == {"axis": 1, "reverse": True}
    assert result.handle.type == x.handle.type
    assert x.cumprod(0).handle.type == x.handle.type
    assert names(kernel.last("tile.scan").regions[0]) == ["arith.mul", "control.yield"]
    assert len(gl.associative_scan((x, x), 0, swap)) == 2
    with mistake("layout-axis"):
        gl.cumsum(x, 5)
    with mistake("tile-combine-function"):
        gl.associative_scan(x, 0, max)


def test_sort_and_topk(kernel):
    x = kernel.tile(gl.float16, (16, 32))
    y = gl.sort(x)
    assert (y.shape, y.dtype, y.layout) == (x.shape, x.dtype, x.layout)
    assert kernel.names.count("tile.sort_step") == 15
    assert gl.topk(x, 4, dim=0).shape == [4, 32] and gl.topk(x, 32).shape == [16, 32]
    steps = kernel.names.count("tile.sort_step")
    assert gl.bitonic_merge(x, 0).shape == [16, 32] and kernel.names.count("tile.sort_step") == steps + 4
    for k in (0, 3, 64, -4):
        with mistake("tile-topk") as found:
            gl.topk(x, k)
        assert f"k={k}" in found.text
    with mistake("tile-sort-end") as found:
        gl.sort(kernel.tile(gl.float16, (16, 96)))
    assert "axis 1 has 96 elements" in found.text
    with mistake("layout-axis"):
        gl.sort(x, 2)
    with mistake("language-integer-needed"):
        gl.sort(kernel.tile(gl.int1))
    with mistake("language-constexpr-needed"):
        gl.topk(x, kernel.scalar(gl.int32))


def test_histogram(kernel):
    x = kernel.tile(gl.uint8)
    counts = gl.histogram(x, 256, layout=BLOCKED)
    assert (counts.dtype, counts.shape, counts.layout) == (gl.int32, [256], BLOCKED)
    gl.histogram(x, 16, mask=kernel.scalar(gl.int1))
    assert kernel.names[-2:] == ["tile.splat", "tile.histogram"]
    with mistake("tile-histogram"):
        gl.histogram(kernel.tile(gl.float32), 16)
    with mistake("tile-histogram"):
        gl.histogram(kernel.tile(gl.int32, (16, 32)), 16)
    with mistake("layout-tile-shape"):
        gl.histogram(x, 100)


def test_gather(kernel):
    src, index = kernel.tile(gl.float16, (16, 32)), kernel.tile(gl.int32, (16, 8))
    result = gl.gather(src, index, -1)
    assert result.shape == [16, 8] and result.dtype == gl.float16
    assert kernel.last("tile.gather").attrs == {"axis": 1}
    with mistake("tile-gather-shape"):
        gl.gather(src, index, 0)
    with mistake("tile-gather-shape"):
        gl.gather(src, kernel.tile(gl.int32), 0)
    with mistake("language-integer-needed"):
        gl.gather(src, kernel.tile(gl.float32, (16, 8)), 1)


def test_map_elementwise(kernel):
    x = kernel.tile(gl.float32, (16, 32))
    result = gl.map_elementwise(jit(lambda a, b: a + b), x, kernel.tile(gl.int32, (16, 1)))
    assert result.handle.type == x.handle.type
    op = kernel.last("elements.map")
    assert [arg.type.element for arg in op.regions[0].args] == [gl.float32, gl.int32]
    both = gl.map_elementwise(jit(lambda a0, a1: (a1, a0)), x, pack=2)
    assert both.shape == [16, 32]
    pair = gl.map_elementwise(jit(lambda a: (a, a < 0)), x)
    assert [v.dtype for v in pair] == [gl.float32, gl.int1]
    with mistake("tile-map-pack"):
        gl.map_elementwise(jit(lambda: 1))
    with mistake("tile-map-result"):
        gl.map_elementwise(jit(lambda a, b: (a, b < 0)), x, pack=2)
    with mistake("tile-combine-function"):
        gl.map_elementwise(lambda a: a, x)


def test_dot_fma(kernel):
    a = kernel.tile(gl.float32, (16, 8), gl.DotOperandLayout(0, MATRIX, 0))
    b = kernel.tile(gl.float32, (8, 32), gl.DotOperandLayout(1, MATRIX, 0))
    acc = kernel.tile(gl.float32, (16, 32))
    assert gl.dot_fma(a, b, acc).handle.type == acc.handle.type
    with mistake("tile-dot-shape"):
        gl.dot_fma(b, a, acc)
    with mistake("tile-dot-type"):
        gl.dot_fma(a, b, acc.to(gl.float16))
