"""Rows that TMA gathers and scatters by their numbers."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, random, same
from weft import language as gl
from weft.language.nvidia.blackwell import fence_async_shared, mbarrier, tma

pytestmark = pytest.mark.usefixtures("blackwell")

LINE = gl.BlockedLayout([1], [32], [4], [0])
GRID = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])


@weft.jit
def doubled_rows(
    x, out, rows, to_rows, n, R: gl.constexpr, C: gl.constexpr, layout: gl.constexpr, lines: gl.constexpr
):  # fmt: skip
    """Rows of x, R of them at a time, come to other rows of out, twice as large."""
    smem = gl.allocate_shared_memory(x.dtype, [R, C], x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    at = gl.program_id(0) * R + gl.arange(0, R, lines)
    # Rows beyond the last are outside of both matrices.
    picked = gl.load(rows + at, mask=at < n, other=-1)
    phase = 0
    for column in range(0, x.shape[1], C):
        mbarrier.expect(bar, R * C * x.dtype.primitive_bitwidth // 8)
        tma.async_gather(x, picked, column, bar, smem)
        mbarrier.wait(bar, phase)
        phase ^= 1
        value = smem.load(layout)
        smem.store(value + value)
        fence_async_shared()
        gl.barrier()
        tma.async_scatter(out, gl.load(to_rows + at, mask=at < n, other=-1), column, smem)
        tma.store_wait(0)


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "swizzle"),
    [(np.float16, 64, 64, 128), (np.float32, 16, 16, 64), (np.float16, 8, 128, 128), (np.float32, 32, 8, 0)],
)
@pytest.mark.parametrize(("m", "width", "n"), [(90, 136, 77), (300, 64, 64)])
def test_rows_are_gathered_and_scattered(run, rng, dtype, rows, columns, swizzle, m, width, n):
    x, out = random(rng, dtype, (m, width)), np.full((m, width), 7, dtype)
    picked = rng.integers(0, m, n).astype(np.int32)
    to = rng.permutation(m)[:n].astype(np.int32)
    layout = gl.NVMMASharedLayout(swizzle, np.dtype(dtype).itemsize * 8, 2)
    source, target = (Described(array, [1, columns], layout) for array in (x, out))
    run(doubled_rows, -(-n // rows), source, target, picked, to, n, rows, columns, GRID, LINE)
    wanted = np.full((m, width), 7, dtype)
    wanted[to] = x[picked] * 2
    same(out, wanted)


@weft.jit
def summed_rows(x, rows, out, R: gl.constexpr, C: gl.constexpr, layout: gl.constexpr, lines: gl.constexpr):
    """The sum of some rows, two buffers in flight."""
    smem = gl.allocate_shared_memory(x.dtype, [2, R, C], x.layout)
    bars = mbarrier.allocate_mbarrier(batch=2)
    for i in gl.static_range(2):
        mbarrier.init(bars.index(i), count=1)
    steps = x.shape[1] // C
    picked = gl.load(rows + gl.arange(0, R, lines))
    for i in gl.static_range(2):
        mbarrier.expect(bars.index(i), R * C * 4, pred=i < steps)
        tma.async_gather(x, picked, i * C, bars.index(i), smem.index(i), pred=i < steps)
    for step in range(steps):
        mbarrier.wait(bars.index(step % 2), step // 2 & 1)
        total = gl.sum(smem.index(step % 2).load(layout), 0)
        gl.store(out + step * C + gl.arange(0, C, gl.SliceLayout(0, layout)), total)
        fence_async_shared()
        gl.barrier()
        more = step + 2 < steps
        mbarrier.expect(bars.index(step % 2), R * C * 4, pred=more)
        tma.async_gather(x, picked, (step + 2) * C, bars.index(step % 2), smem.index(step % 2), pred=more)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_gathers_in_a_pipeline(run, rng, steps):
    x = rng.integers(-99, 99, (50, 32 * steps)).astype(np.int32)
    picked, out = rng.integers(0, 50, 16).astype(np.int32), np.zeros(32 * steps, np.int32)
    described = Described(x, [1, 32], gl.NVMMASharedLayout(128, 32, 2))
    run(summed_rows, 1, described, picked, out, 16, 32, GRID, LINE)
    same(out, x[picked].sum(0, dtype=np.int32))


@weft.jit
def shared_rows(x, out, rows, R: gl.constexpr, C: gl.constexpr, lines: gl.constexpr, layout: gl.constexpr):
    """The lower half of a buffer gets rows that several blocks need."""
    whole = gl.allocate_shared_memory(x.dtype, [R, 2 * C], x.layout)
    smem = whole.slice(C, C, dim=1)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, smem.nbytes_per_cta)
    tma.async_gather(x, gl.load(rows + gl.arange(0, R, lines)), 0, bar, smem, multicast=True)
    mbarrier.wait(bar, 0)
    i, j = gl.arange(0, R, gl.SliceLayout(1, layout)), gl.arange(0, C, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * C + j[None, :], smem.load(layout))


@pytest.mark.parametrize("cga", [[[1, 0]], [[0, 0]], [[0, 0], [1, 0]], [[1, 0], [0, 0]]])
def test_rows_are_gathered_for_several_blocks(run, rng, cga):
    x, out = random(rng, np.float16, (100, 64)), np.zeros((64, 64), np.float16)
    picked = rng.integers(0, 100, 64).astype(np.int32)
    shared = gl.NVMMASharedLayout(128, 16, 2, cga_layout=cga)
    grid = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], cga_layout=cga)
    lines = gl.SliceLayout(1, gl.BlockedLayout([4, 1], [1, 32], [4, 1], [0, 1], cga_layout=cga))
    made = run(shared_rows, 1, Described(x, [1, 64], shared), out, picked, 64, 64, lines, grid, num_ctas=1 << len(cga))
    assert (".multicast::cluster" in made.asm["cuda"]) == ([0, 0] in cga)
    same(out, x[picked])
