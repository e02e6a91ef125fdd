"""Packed fp4 that TMA spreads over padded shared memory, 8 bytes in each 16, as products of mixed formats read it."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, poison, same
from weft import language as gl
from weft.language.nvidia.blackwell import mbarrier, tma

pytestmark = pytest.mark.usefixtures("blackwell")

PADDED = gl.NVMMASharedLayout(128, 8, 2, fp4_padded=True)
GRID = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])


@weft.jit
def unpacked(x, out, row, column, R: gl.constexpr, C: gl.constexpr, layout: gl.constexpr):
    """The values of a block of packed fp4, as float16. Only the packed bytes arrive on the barrier."""
    smem = gl.allocate_shared_memory(x.dtype, [R, C], x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.block_type.nbytes)
    tma.async_load(x, [row, column], bar, smem)
    mbarrier.wait(bar, 0)
    packed = smem.load(layout)
    i = gl.arange(0, R, gl.SliceLayout(1, layout))
    j = gl.arange(0, C, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * C + j[None, :], packed)


@pytest.mark.parametrize(("columns", "column"), [(64, 0), (64, 64), (128, 64), (128, 128)])
@pytest.mark.parametrize("row", [0, -3, 30])
def test_blocks_of_packed_fp4(run, rng, row, column, columns):
    x, out = rng.integers(0, 256, (40, 192)).astype(np.uint8), poison((32, columns), np.uint8)
    run(unpacked, 1, Described(x, [32, columns], PADDED), out, row, column, 32, columns, GRID)
    wide = np.zeros((80, 320), np.uint8)
    wide[8:48, :192] = x
    same(out, wide[8 + row : 40 + row, column : column + columns])


@weft.jit
def gathered(x, out, rows, column, R: gl.constexpr, layout: gl.constexpr, lines: gl.constexpr):
    smem = gl.allocate_shared_memory(x.dtype, [R, 128], x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, R * 128)
    tma.async_gather(x, gl.load(rows + gl.arange(0, R, lines)), column, bar, smem)
    mbarrier.wait(bar, 0)
    i = gl.arange(0, R, gl.SliceLayout(1, layout))
    j = gl.arange(0, 128, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * 128 + j[None, :], smem.load(layout))


def test_rows_of_packed_fp4(run, rng):
    x, out = rng.integers(0, 256, (40, 192)).astype(np.uint8), poison((16, 128), np.uint8)
    rows = rng.integers(0, 40, 16).astype(np.int32)
    lines = gl.BlockedLayout([1], [32], [4], [0])
    compiled = run(gathered, 1, Described(x, [1, 128], PADDED), out, rows, 64, 16, GRID, lines)
    same(out, x[rows, 64:192])
    assert "2 * (column" in compiled.asm["cuda"], "the hardware counts fp4, the kernel bytes"
