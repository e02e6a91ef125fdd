"""Laws of views over random chains of parts: NumPy, the host and kernels see the same numbers in the same places.

A chain is data, `(method, static arguments, indices)`, so that the host, one kernel and the NumPy reference all walk it.
"""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, frozen, same
from weft import language as gl
from weft.layout import tile_to_shape

row_major, UNKNOWN = gl.Layout.row_major, gl.UNKNOWN
NESTED = (2, 4)
"""The tiles of the nested layout."""
OUTSIDE = -1
WRITTEN = -7


def walked(view, chain):
    """The part of a host view that a chain leads to."""
    for method, static, indices in chain:
        if method == "transpose":
            view = view.transpose(*static)
        elif method == "slice":
            view = view.slice[slice(*static), :]()
        else:
            view = getattr(view, method)(*static)(*indices)
    return view


@weft.jit
def through(out, t, written, numbers, chain: gl.constexpr, count: gl.constexpr):
    """Copies what a chain leads to, with indices from memory, and writes to the same part of another view."""
    u, w = t, written
    k = 0
    for step in gl.static_range(len(chain)):
        method, static, indices = chain[step]
        if method == "transpose":
            u, w = u.transpose(*static), w.transpose(*static)
        elif method == "tile":
            i, j = gl.load(numbers + k), gl.load(numbers + k + 1)
            u, w = u.tile(*static)(i, j), w.tile(*static)(i, j)
        elif method == "distribute":
            i = gl.load(numbers + k)
            u, w = u.distribute(*static)(i), w.distribute(*static)(i)
        elif method == "split":
            i = gl.load(numbers + k)
            u, w = u.split(*static)(i), w.split(*static)(i)
        elif method == "slice":
            first, last, every = static
            u, w = u.slice[first:last:every, :](), w.slice[first:last:every, :]()
        else:
            u, w = u.vectorize(*static)(), w.vectorize(*static)()
        k += len(indices)
    if gl.thread_idx.x == 0:
        gl.LayoutTensor(out, row_major(count)).copy_from(u)
        w.fill(WRITTEN)


def dividing(rng, size, limit=8):
    return int(rng.choice([n for n in range(1, min(size, limit) + 1) if size % n == 0]))


def a_step(rng, grid, kind, method):
    """A step and what it makes of the grid of numbers. Along masked axes parts may reach beyond the edge."""
    sizes = [int(rng.integers(1, 7)) if kind == "masked" else dividing(rng, size) for size in grid.shape]
    if kind == "nested":
        sizes = list(NESTED)
    if method == "transpose":
        return (method, (1, 0), ()), grid.T
    if method == "tile":
        i, j = (int(rng.integers(-(-size // part))) for size, part in zip(grid.shape, sizes, strict=True))
        (m, n), part = sizes, (i, j)
        return (method, tuple(sizes), part), grid[i * m : (i + 1) * m, j * n : (j + 1) * n]
    if method == "distribute":
        i, j = (int(rng.integers(min(size, part))) for size, part in zip(grid.shape, sizes, strict=True))
        threads = row_major(*sizes) if rng.random() < 0.5 else gl.Layout.col_major(*sizes)
        return (method, (threads,), (threads(i, j),)), grid[i :: sizes[0], j :: sizes[1]]
    if method == "split":
        axis = int(rng.integers(2))
        parts = dividing(rng, grid.shape[axis])
        index = int(rng.integers(parts))
        return (method, (parts, axis), (index,)), np.split(grid, parts, axis)[index]
    rows, first, step = len(grid), int(rng.integers(len(grid))), int(rng.integers(1, 3))
    return (method, (first, rows, step), ()), grid[first::step]


def a_layout(rng, kind, rows, columns):
    """A layout over memory, and the numbers of its elements where memory counts."""
    static = row_major(rows, columns)
    if kind == "column-major":
        static = gl.Layout.col_major(rows, columns)
    elif kind == "padded":
        static = gl.Layout((rows, columns), (columns + 3, 1))
    elif kind == "nested":
        static = tile_to_shape(row_major(*NESTED), (rows, columns), order=(1, 0))
    layout = gl.Layout((UNKNOWN, UNKNOWN), (UNKNOWN, 1)) if kind == "run-time" else static
    memory = np.arange(static.cosize(), dtype=np.int32)
    grid = np.array([[static(i, j) for j in range(columns)] for i in range(rows)], np.int32)
    return layout, memory.reshape(rows, columns) if kind == "run-time" else memory, grid


@pytest.mark.parametrize("case", range(4))
@pytest.mark.parametrize("kind", ["row-major", "column-major", "padded", "nested", "run-time", "masked"])
def test_a_chain_of_parts(run, rng, kind, case):
    masked = kind == "masked"
    rows, columns = (int(n) if masked else 4 * int(n) for n in rng.integers(1, 20 if masked else 5, 2))
    layout, memory, grid = a_layout(rng, kind, rows, columns)
    # What a kernel copies has a known size, which a tile gives to a view of run-time sizes; of a nested one it is plain.
    step, grid = a_step(rng, grid, kind, "tile")
    chain = [step]
    methods = ["tile", "distribute", "transpose"] + ([] if masked else ["split", "slice"])
    for method in rng.choice(methods, int(rng.integers(1, 4))):
        step, part = a_step(rng, grid, "masked" if masked else "plain", method)
        if part.size:
            chain.append(step)
            grid = part
    found = walked(weft.LayoutTensor(memory, layout, masked=masked), chain)
    if kind in ("row-major", "column-major", "nested") and rng.random() < 0.5:
        chain.append(("vectorize", (dividing(rng, grid.shape[0], 4), 1), ()))
        found = walked(found, chain[-1:])
    same(np.ascontiguousarray(found), np.ascontiguousarray(grid))

    count = found.size() * found.element_size
    expected = np.full(count, OUTSIDE, np.int32)
    weft.LayoutTensor(expected).copy_from(found)
    written = memory.copy()
    numbers = [index for _, _, indices in chain for index in indices]
    out, after = np.full(count, OUTSIDE, np.int32), memory.copy()
    after.ravel()[grid.ravel()] = WRITTEN
    run(
        through, 1, out, Viewed(frozen(memory), layout, masked), Viewed(written, layout, masked),
        frozen(np.array([*numbers, 0], np.int32)), tuple(chain), count, block=32, compiles=case == 0,
    )  # fmt: skip
    same(out, expected)
    same(written, after)
