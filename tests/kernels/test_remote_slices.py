"""Slices of tiles whose memory is in the other block of a pair: TMA loads of such slices on Blackwell."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, poison, same
from weft import language as gl
from weft.language.nvidia.blackwell import cluster, fence_async_shared, mbarrier, tma

pytestmark = pytest.mark.usefixtures("blackwell")


@weft.jit
def slices(
    x, picked, out, TILE: gl.constexpr, dim: gl.constexpr, STEPS: gl.constexpr, cga: gl.constexpr, MANY: gl.constexpr,
    SHARED: gl.constexpr, ROWS: gl.constexpr,
):  # fmt: skip
    """Each half of a tile, in turn, gets blocks of x or its rows of the numbers `picked`; `out` is the tile after each."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], cga_layout=cga)
    lines: gl.constexpr = gl.SliceLayout(1, gl.BlockedLayout([1, 1], [32, 1], [4, 1], [1, 0], cga_layout=cga))
    HALF: gl.constexpr = TILE[dim] // 2
    whole = gl.allocate_shared_memory(x.dtype, TILE, x.layout, value=gl.full(TILE, -1, x.dtype, layout))
    bar = mbarrier.allocate_mbarrier(two_ctas=SHARED)
    mbarrier.init(bar, count=1)
    i, j = gl.arange(0, TILE[0], gl.SliceLayout(1, layout)), gl.arange(0, TILE[1], gl.SliceLayout(0, layout))
    at = i[:, None] * TILE[1] + j[None, :]
    for step in gl.static_range(STEPS):
        part = whole.slice(HALF * ((step + 1) % 2), HALF, dim=dim)
        mbarrier.expect(bar, part.nbytes_per_cta)
        if ROWS:
            rows = gl.load(picked + step * part.shape[0] + gl.arange(0, part.shape[0], lines))
            tma.async_gather(x, rows, 0, bar, part, multicast=MANY)
        else:
            tma.async_load(x, [step * part.shape[0], 0], bar, part, multicast=MANY)
        mbarrier.wait(bar, step & 1)
        cluster.barrier()
        gl.store(out + step * TILE[0] * TILE[1] + at, whole.load(layout))
        fence_async_shared()
        cluster.barrier()


def wanted(x: np.ndarray, picked: np.ndarray, tile: tuple[int, int], dim: int, steps: int) -> np.ndarray:
    now, found = np.full(tile, -1, x.dtype), []
    size = tile[dim] // 2
    rows = tile[0] if dim else size
    for step in range(steps):
        first = size * ((step + 1) % 2)
        at = (slice(first, first + size), slice(None)) if dim == 0 else (slice(None), slice(first, first + size))
        now[at] = x[picked[step * rows :][:rows]]
        found.append(now.copy())
    return np.stack(found)


@pytest.mark.parametrize(
    ("cga", "dim", "many", "shared"),
    [
        ([[1, 0]], 0, False, False),
        ([[1, 0]], 0, False, True),
        ([[1, 0], [0, 0]], 0, False, False),
        ([[1, 0], [0, 0]], 0, True, False),
        ([[1, 0], [0, 0]], 0, True, True),
        ([[0, 1]], 1, False, False),
        ([[1, 0], [0, 1]], 0, False, False),
    ],
)
@pytest.mark.parametrize("rows", [False, True], ids=["tiles", "rows"])
def test_slices_in_the_memory_of_the_other_block(run, rng, cga, dim, many, shared, rows):
    steps, tile = 3, (32, 256) if dim else (32, 128)
    count = (tile[0] if dim else tile[0] // 2) * steps
    width = tile[1] // 2 if dim else tile[1]
    x = rng.integers(0, 1000, (count, width)).astype(np.int16)
    picked = rng.permutation(count).astype(np.int32) if rows else np.arange(count, dtype=np.int32)
    out = poison(steps * tile[0] * tile[1], np.int16)
    layout = gl.NVMMASharedLayout(128, 16, rank=2, cga_layout=cga)
    block = [1 if rows else count // steps, width]
    x.flags.writeable = picked.flags.writeable = False
    run(slices, 1, Described(x, block, layout), picked, out, tile, dim, steps, cga, many, shared, rows,
        num_ctas=1 << len(cga))  # fmt: skip
    same(out.reshape(steps, *tile), wanted(x, picked, tile, dim, steps))
