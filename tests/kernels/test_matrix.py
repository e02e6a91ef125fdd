"""Whole matrices, of which the other files run one case per axis: each layout with each other one and every width."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import poison, same, values
from tests.kernels.matrices import LAYOUTS, M, N, load_matrix, store_matrix
from weft import language as gl

pytestmark = pytest.mark.matrix
WIDTHS = (np.bool_, np.uint8, np.float16, np.float32, np.int64)


@weft.jit
def convert(out, x, M: gl.constexpr, N: gl.constexpr, source: gl.constexpr, target: gl.constexpr):
    store_matrix(out, gl.convert_layout(load_matrix(x, M, N, source), target), M, N, target)


@weft.jit
def total(out, x, M: gl.constexpr, N: gl.constexpr, AXIS: gl.constexpr, source: gl.constexpr, target: gl.constexpr):
    summed = gl.convert_layout(gl.sum(load_matrix(x, M, N, source), axis=AXIS), gl.SliceLayout(AXIS, target))
    gl.store(out + gl.arange(0, N if AXIS == 0 else M, gl.SliceLayout(AXIS, target)), summed)


@pytest.mark.parametrize("kind", WIDTHS, ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("source", LAYOUTS)
def test_conversion(run, rng, source, target, kind):
    x, out = values(rng, kind, M * N), poison(M * N, kind)
    run(convert, 1, out, x, M, N, LAYOUTS[source], LAYOUTS[target])
    same(out, np.array(x))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("source", LAYOUTS)
def test_sum_into_a_slice(run, rng, source, target, axis):
    x, out = values(rng, np.int32, M * N), poison(N if axis == 0 else M, np.int32)
    run(total, 1, out, x, M, N, axis, LAYOUTS[source], LAYOUTS[target])
    same(out, np.array(x).reshape(M, N).sum(axis, dtype=np.int32))
