"""Tuples of run-time values: as arguments of launches, named ones made in kernels, and halves of a pair."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import weft
from tests.kernels.harness import Within, frozen, poison, same
from weft import language as gl

LINE = gl.BlockedLayout([1], [32], [4], [0])


class Rows(NamedTuple):
    """A matrix in memory."""

    ptr: Any
    stride: Any
    shape: Any = None


@weft.jit
def scaled_rows(src, factors: gl.tuple, out, width: gl.constexpr):
    gl.static_assert(len(factors) == 3 and isinstance(factors, gl.tuple) and isinstance(factors, gl.base_value))
    gl.static_assert(isinstance(factors[1].type, gl.base_type))
    at = gl.arange(0, width, LINE)
    row, (scale, shift) = gl.program_id(0), factors[:2]
    x = gl.load(src.ptr + row * src.stride + at, mask=at < src.shape[1])
    gl.store(out + row * width + at, x * scale + shift + factors[2][0], mask=at < src.shape[1])


def test_tuples_are_arguments(run, rng):
    for shape in ((3, 77), (1, 128)):
        x = frozen(rng.integers(-8, 8, shape).astype(np.float32))
        for factors in ((2, 1.5, (16,)), (1, 0.25, (0.5,)), (2.0, 3, (1,))):
            out, want = poison(shape[0] * 128, np.float32), None
            want = out.reshape(shape[0], 128).copy()
            want[:, : shape[1]] = x * factors[0] + factors[1] + factors[2][0]
            run(scaled_rows, shape[0], Within(x, lambda x, shape=shape: Rows(x, shape[1], shape)), factors, out, 128)
            same(out, want.reshape(-1))


class Pair(NamedTuple):
    """Of two kinds."""

    number: Any
    tile: Any


@weft.jit
def types_of_tuples(out, given):
    line = gl.arange(0, 128, LINE)
    pair, mixed = Pair(gl.program_id(0), line), (gl.program_id(0), (line, 3))
    gl.static_assert(isinstance(pair.type, gl.tuple_type) and isinstance(pair.type, gl.base_type))
    gl.static_assert(pair.type == gl.tuple_type([gl.int32, line.type], ["number", "tile"]))
    gl.static_assert(mixed.type == gl.tuple_type((gl.int32, gl.tuple_type((line.type, gl.constexpr)))))
    gl.static_assert(len(mixed.type) == 2 and mixed.type[1][0] == line.type and mixed.type != pair.type)
    gl.static_assert(given.type.types == (gl.int32, gl.float32) and given.type.fields is None)
    low, high = gl.inline_asm("mov.b32 $0, 1; mov.b32 $1, 2;", "=r,=r", [], (pair.number, pair.number).type)
    gl.store(out, low + high)


def test_tuples_have_types(run):
    out = poison(1, np.int32)
    run(types_of_tuples, 1, out, (3, 1.5))
    same(out, np.array([3], np.int32))


@weft.jit
def plus(a, b):
    return a + b


@weft.jit
def times(a, b):
    return a * b


@weft.jit
def applied(out, functions, a, b):
    for function in functions:
        a = function(a, b)
    gl.store(out, a)


def test_functions_in_tuples_are_constants(run):
    for functions, want in (((plus, times), 28), ((times, plus, plus), 20)):
        out = poison(1, np.int32)
        run(applied, 1, out, functions, 3, 4)
        same(out, np.array([want], np.int32))


@weft.jit
def advanced(rows, step):
    return Rows(rows.ptr + step, stride=rows.stride + 1)


@weft.jit
def walk(out, src, n):
    rows = Rows(src, 0)
    for i in range(n):
        rows = advanced(rows, i)
    gl.store(out, gl.load(rows.ptr) + rows.stride)


def test_named_tuples_are_made_in_kernels(run):
    src, out = np.arange(100, dtype=np.int32) * 10, poison(1, np.int32)
    run(walk, 1, out, src, 5)
    same(out, np.array([105], np.int32))


@weft.jit
def halves(out, a, b, layout: gl.constexpr):
    lanes = gl.arange(0, 2, layout)
    first, second = gl.split(gl.where(lanes == 0, a, b))
    gl.store(out, first * 100 + second)


def test_a_pair_splits_into_scalars(run):
    out = poison(1, np.int32)
    run(halves, 1, out, 7, 11, gl.SliceLayout(0, gl.BlockedLayout([1, 2], [1, 32], [1, 4], [1, 0])))
    same(out, np.array([711], np.int32))
