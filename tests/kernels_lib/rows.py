"""What tests of row kernels share: arrays with poisoned neighbours, bounds by type, and gradients by finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.harness import run_lowered, same

BOUND = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 1e-2}
"""Relative error of one rounding, with room for sums in float32."""
TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
MATRIX = pytest.mark.matrix
COLUMNS = [1, 7, 129, 1000, 2560, 4096, pytest.param(36_872, marks=MATRIX), pytest.param(131_073, marks=MATRIX)]
"""Lengths of rows: in part of a warp, in a warp, in blocks that they fill and do not fill; the last two in a cluster."""


def close(got: np.ndarray, want: np.ndarray, bound: float = 0.0) -> None:
    """Equal to a float64 reference up to the rounding of the type of `got`, and to sums as long as the largest elements."""
    wide = np.asarray(got).astype(np.float64)
    bound = bound or BOUND[np.asarray(got).dtype.name]
    assert wide.shape == want.shape
    np.testing.assert_array_equal(np.isnan(wide), np.isnan(want))
    finite = want[np.isfinite(want)]
    largest = float(np.abs(finite).max()) if finite.size else 1.0
    np.testing.assert_allclose(wide, want, rtol=bound, atol=bound * max(largest, 1e-30) / 4)


def poisoned(device, shape, dtype):
    """An output full of NaN, or for integers of the lowest number."""
    kind = np.dtype(dtype)
    value = np.iinfo(kind).min if kind.kind in "iu" else np.nan
    return device.array(np.full(shape, value).astype(kind))


def slope(
    function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, upper: np.ndarray, step: float = 1e-6
) -> np.ndarray:
    """The gradient of sum(function(x) * upper) by central differences in float64."""
    found = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        away = np.zeros(x.shape)
        away[at] = step
        found[at] = ((function(x + away) - function(x - away)) * upper).sum() / (2 * step)
    return found


class Recorder:
    """A kernel that only keeps what it is launched with, to be compiled and looked at."""

    def __init__(self) -> None:
        self.given: list[tuple] = []

    def __getitem__(self, grid):
        return lambda *arguments, stream, **options: self.given.append((arguments, options))


def launched_twice(kernel: Any, grid: Any, arguments: tuple[Any, ...], options: dict[str, Any], stream: Any) -> None:
    """In place of `launched`: launch a kernel in the simulator, and run its lowered IR on the same inputs."""
    assert stream is None
    whole = {id(root): root for root in (_root(x) for x in arguments if isinstance(x, np.ndarray))}
    before = [array.copy() for array in whole.values()]
    compiled = kernel[grid](*arguments, **options)
    results = [array.copy() for array in whole.values()]
    for array, old in zip(whole.values(), before, strict=True):
        array[...] = old
    run_lowered(kernel, compiled, grid, arguments, options)
    for array, result in zip(whole.values(), results, strict=True):
        same(array, result, "tile IR and lowered IR disagree")


def _root(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
