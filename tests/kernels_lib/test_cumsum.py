"""Prefix sums of rows: under many schedules, for every size of tile, in place, and the arrays that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import LaunchError
from weft.kernels import cumsum
from weft.kernels import scan as host

SEEDS = 20
EPS = float(np.finfo(np.float32).eps)
SMALL = host.Tile(1, 4)


@pytest.fixture
def small(monkeypatch):
    """Tiles of 512 elements, of which a row has several."""
    monkeypatch.setattr(host, "TILES", (SMALL,) * 3)


class Recorded:
    """A kernel whose launches are kept: what was compiled, and the words."""

    def __init__(self, kernel: Any, launches: list[Any]) -> None:
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid: Any) -> Any:
        def launch(*arguments: Any, **options: Any) -> None:
            self.launches.append((self.kernel[grid](*arguments, **options), arguments[2]))

        return launch


def integers(rng: np.random.Generator, shape) -> np.ndarray:
    """Over the whole range, so that sums wrap."""
    return rng.integers(-(2**31), 2**31, shape, dtype=np.int64).astype(np.int32)


def close(found: np.ndarray, x: np.ndarray) -> None:
    """As exact as pairwise sums within a tile and sequential sums over tiles are: far below one rounding per element."""
    want = np.cumsum(x.astype(np.float64), -1)
    # Each partial sum on the way to an element is at most the sum of magnitudes before it.
    bound = 40 * EPS * np.cumsum(np.abs(x.astype(np.float64)), -1)
    assert found.dtype == np.float32 and np.all(np.abs(found - want) <= bound)


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.matrix) for seed in range(8, SEEDS))]
)
def test_schedules(small, rng, monkeypatch, seed):
    """With every hazard checked, in random orders of programs: of programs with several tiles each, and with one tile each. The
    order of additions is the same in all of them."""
    x, f = integers(rng, (2, 9001)), rng.normal(size=17_000).astype(np.float32)
    if seed % 2:
        monkeypatch.setattr(host, "multiprocessors_of", lambda *_: 2)
    with weft.simulate(seed=seed):
        assert np.array_equal(cumsum(x), np.cumsum(x, -1, dtype=np.int32))
        found = cumsum(f)
    close(found, f)
    if seed < 2:
        with weft.simulate(seed=SEEDS + seed):
            assert np.array_equal(cumsum(f), found)


@pytest.mark.parametrize("tiles", [33, pytest.param(150, marks=pytest.mark.matrix)])
def test_rows_that_end_within_a_round(small, rng, monkeypatch, tiles):
    """The program that adds up has 128 tiles in a round, of four warps: rows begin anywhere in it, or last for several."""
    x = integers(rng, (200 // tiles + 2, 512 * tiles))
    compiled: list[Any] = []
    monkeypatch.setattr(host.device, "scan", Recorded(host.device.scan, compiled))
    assert np.array_equal(cumsum(x), np.cumsum(x, -1, dtype=np.int32))
    ((kernel, words),) = compiled
    assert kernel.report.advice == [] and not words.any()


def test_the_choice_of_tiles():
    sizes = [(1, 5), (1, 512), (1, 513), (7, 8192), (1, 8193), (1, 1 << 21), (1, 1 << 22), (1, 1 << 26), (100, 1 << 20)]
    assert [host.tile_of(*size).elements for size in sizes] == [512, 512, 1024, 8192, 2048, 2048, 4096, 8192, 8192]


SHAPES = [(1,), (31,), (511,), (512,), (513,), (4097,), (70_001,), (3, 1000), (7, 129), (1, 40), (2, 20_000), (5, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(device, rng, shape):
    x, f = integers(rng, shape), rng.normal(size=shape).astype(np.float32)
    assert np.array_equal(device.numpy(cumsum(device.array(x))), np.cumsum(x, -1, dtype=np.int32))
    close(device.numpy(cumsum(device.array(f))), f)


@pytest.mark.parametrize("size", host.TILES, ids=str)
def test_tiles(device, rng, monkeypatch, size):
    monkeypatch.setattr(host, "TILES", (size,) * 3)
    x = integers(rng, (2, 9 * size.elements + 77))
    assert np.array_equal(device.numpy(cumsum(device.array(x))), np.cumsum(x, -1, dtype=np.int32))


def test_many_tiles_at_once(small, device, rng):
    """Enough for all programs of a GPU to publish at the same time."""
    x = integers(rng, 512 * 3000 + 5 if device.is_gpu else 512 * 70 + 5)
    given = device.array(x)
    for _ in range(20 if device.is_gpu else 1):
        assert np.array_equal(device.numpy(cumsum(given)), np.cumsum(x, dtype=np.int32))


def test_in_place_and_into_a_given_array(device, rng):
    x = integers(rng, (3, 5000))
    want = np.cumsum(x, -1, dtype=np.int32)
    given = device.array(x)
    assert cumsum(given, out=given) is given
    assert np.array_equal(device.numpy(given), want)
    out = device.full((3, 6000), -1, np.int32)
    part = out[:, 3:5003]
    assert cumsum(device.array(x), 1, part) is part
    found = device.numpy(out)
    assert np.array_equal(found[:, 3:5003], want)
    assert (found[:, :3] == -1).all() and (found[:, 5003:] == -1).all()


def test_rows_of_a_wider_array(device, rng):
    x = integers(rng, (4, 3001))
    assert np.array_equal(
        device.numpy(cumsum(device.array(x)[1:, 5:2800])), np.cumsum(x[1:, 5:2800], -1, dtype=np.int32)
    )


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0)], ids=str)
def test_nothing_to_sum(shape):
    assert cumsum(np.zeros(shape, np.float32)).shape == shape


X = np.ones((4, 8), np.float32)
MISTAKES = {
    "kernels-scan-array": [
        (lambda: cumsum("x"), "a str"), (lambda: cumsum(X.astype(np.float64)), "float64"),
        (lambda: cumsum(np.ones((2, 2, 2), np.float32)), "[2, 2, 2]"), (lambda: cumsum(X, out=3), "a int"),
    ],
    "kernels-scan-axis": [(lambda: cumsum(X, 0), "axis is 0"), (lambda: cumsum(X, True), "True"), (lambda: cumsum(X, 2), "2")],
    "kernels-scan-strides": [(lambda: cumsum(X.T), "writes 256 bytes"), (lambda: cumsum(X[:, ::-1]), "x")],
    "kernels-scan-out": [
        (lambda: cumsum(X, out=X[:2].copy()), "[2, 8]"), (lambda: cumsum(X, out=np.ones((4, 8), np.int32)), "int32"),
    ],
    "kernels-out-overlaps": [(lambda: cumsum(X[:3], out=X[1:]), "x")],
}  # fmt: skip


@pytest.mark.parametrize(("code", "call", "words"), [(c, *each) for c, calls in MISTAKES.items() for each in calls])
def test_mistakes(code, call, words):
    with pytest.raises(LaunchError) as caught:
        call()
    assert caught.value.code == code and words in str(caught.value)
