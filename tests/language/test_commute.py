"""Which combine functions are seen to commute, so that a reduction may combine elements in any order."""

from __future__ import annotations

import pytest

from tests.lang.support import jit
from weft import language as gl


@jit
def total(a, b):
    return a + b


@jit
def total_and_squares(a, n, b, m):
    return a + b, n + m


@jit
def softmax(a, n, b, m):
    top = gl.maximum(a, b)
    return top, n * gl.exp(a - top) + m * gl.exp(b - top)


@jit
def difference(a, b):
    return a - b


@jit
def left(a, b):
    return a


@jit
def swapped(a, n, b, m):
    return a + m, n + b


@jit
def maps(a, n, b, m):
    return a * b, n * b + m


@jit
def larger(a, b):
    return gl.where(a > b, a, b)


@pytest.mark.parametrize(
    ("function", "tiles", "in_order"),
    [(total, 1, False), (gl.maximum, 1, False), (gl.mul, 1, False), (total_and_squares, 2, False), (softmax, 2, False),
     (difference, 1, True), (left, 1, True), (swapped, 2, True), (maps, 2, True), (larger, 1, True)],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_functions(kernel, function, tiles, in_order):
    x = tuple(kernel.tile(gl.float32, (16, 32)) for _ in range(tiles))
    gl.reduce(x if tiles > 1 else x[0], 1, function)
    assert kernel.last("tile.reduce").attrs["in_order"] is in_order


@pytest.mark.parametrize("function", [gl.sum, gl.max, gl.min, gl.argmax, gl.argmin])
def test_reductions_of_the_language(kernel, function):
    function(kernel.tile(gl.float32, (16, 32)), 1)
    assert kernel.last("tile.reduce").attrs["in_order"] is False
