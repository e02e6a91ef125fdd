"""Functions of the language that no other file of this folder is about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.kernels.harness import frozen, poison, same, values
from weft import language as gl
from weft.errors import CompilationError

LINE = gl.BlockedLayout([1], [32], [4], [0])


@weft.aggregate
class Running:
    """A sum and the number of its terms."""

    total: gl.tensor
    count: gl.tensor

    @gl.constexpr_function
    def __init__(self, total: Any, count: Any):
        self.total = total
        self.count = count


@weft.jit
def averages(out, x, n, layout: gl.constexpr):
    at = gl.arange(0, 128, layout)
    running = Running(gl.zeros([128], gl.float32, layout), 0)
    for i in range(n):
        running = gl.aggregate_replace(running, total=running.total + gl.load(x + i * 128 + at))
        running = gl.aggregate_replace(running, count=running.count + 1)
    gl.store(out + at, running.total * running.count.to(gl.float32))


def test_replaced_fields_of_an_aggregate(run, rng):
    x, out = values(rng, np.float32, 3 * 128), poison(128, np.float32)
    x = frozen(np.where(np.isfinite(x) & (np.abs(x) < 1e3), x, 1).astype(np.float32))
    run(averages, 1, out, x, 3, LINE)
    rows = x.reshape(3, 128)
    same(out, (rows[0] + rows[1] + rows[2]) * np.float32(3))


@weft.jit
def zero_behind(out, x, n, layout: gl.constexpr):
    at = gl.arange(0, 128, layout)
    gl.store(out + at, gl.expect_zero(gl.load(x + at), at >= n))


def test_expected_zeros(run):
    x, out = frozen(np.where(np.arange(128) < 40, 1.5, 0).astype(np.float32)), poison(128, np.float32)
    run(zero_behind, 1, out, x, 40, LINE)
    same(out, x)


@weft.jit
def by_columns(out, x):
    matrix = gl.LayoutTensor(x, gl.col_major[4, 8]())
    i = gl.thread_idx.x
    out[i] = matrix[i // 8, i % 8]


def test_views_by_columns(run):
    x, out = frozen(np.arange(32, dtype=np.float32)), poison(32, np.float32)
    run(by_columns, 1, out, x, block=32)
    same(out, x.reshape(8, 4).T.ravel())


@weft.aggregate
class Staged:
    """A buffer, the number of its rows in use, and how many stages it has."""

    buffer: gl.shared_memory_descriptor
    rows: gl.tensor
    stages: gl.constexpr


@gl.constexpr_function
def elements_of(staged, more):
    return staged.buffer.shape[0] * staged.stages + more[0]


@weft.jit
def counted(out, n, layout: gl.constexpr):
    staged = Staged(gl.allocate_shared_memory(gl.int32, [32], gl.SwizzledSharedLayout(1, 1, 1, [0])), n, 3)
    known: gl.constexpr = elements_of(staged, (5,))
    gl.store(out + gl.arange(0, 128, layout), gl.full([128], known, gl.int32, layout) + staged.rows)


def test_constexpr_functions_read_what_is_known_of_aggregates(run):
    out = poison(128, np.int32)
    run(counted, 1, out, 7, LINE)
    same(out, np.full(128, 108, np.int32))


def test_the_result_of_a_constexpr_function_is_a_constant():
    @gl.constexpr_function
    def rows_of(staged):
        return staged.rows

    @weft.jit
    def leaked(out, n):
        gl.store(
            out, rows_of(Staged(gl.allocate_shared_memory(gl.int32, [32], gl.SwizzledSharedLayout(1, 1, 1, [0])), n, 3))
        )

    with pytest.raises(CompilationError, match="the result of rows_of must be known") as caught:
        leaked[1](poison(1, np.int32), 7)
    assert caught.value.code == "lang-not-constexpr"
