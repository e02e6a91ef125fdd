"""Examples of single threads: products and transposes of any shape, banks, and what the compiler makes of their loops."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import weft
from benchmarks import twin
from tests.conftest import Device
from tests.examples.machine_code import main_loop, mnemonics
from weft import language as gl
from weft.runtime import nvrtc

PRODUCT, TRANSPOSE = twin.load("thread_matmul"), twin.load("thread_transpose")
BANKS = 32
compiles = pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")

# Products


def multiply(device, function, shape, **settings):
    """Fresh inputs, a poisoned output, and the product in double precision."""
    M, N, K = shape
    random = np.random.default_rng(0)
    A, B = (random.standard_normal(size, dtype=np.float32) for size in ((M, K), (K, N)))
    C = device.full((M, N), np.nan)
    compiled = function(device.array(A), device.array(B), C, **settings)
    PRODUCT.check(A, B, device.numpy(C))
    return compiled


@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 17, 65), (130, 68, 33), (64, 128, 32), (15, 260, 7)])
@pytest.mark.parametrize("rung", PRODUCT.RUNGS)
def test_product(device, rung, shape):
    multiply(device, PRODUCT.RUNGS[rung], shape)


@pytest.mark.parametrize(
    "tile",
    [
        {"BM": 64, "BN": 64, "BK": 8},
        {"BM": 64, "BN": 64, "BK": 16},
        {"BM": 64, "BN": 128, "BK": 8, "TN": 16},
        {"BM": 128, "BN": 64, "BK": 8, "TM": 16},
        {"BM": 32, "BN": 128, "BK": 8, "TM": 4},
    ],
)
@pytest.mark.parametrize("rung", ["register tile", "double buffered"])
def test_tiles(device, rung, tile):
    multiply(device, PRODUCT.RUNGS[rung], (100, 137, 50), **tile)


@pytest.mark.parametrize("K", [1, 8, 16, 17, 40, 64])
@pytest.mark.parametrize("STAGES", [2, 3, 4])
def test_stages(device, STAGES, K):
    """As many steps as stages, fewer and more."""
    multiply(device, PRODUCT.double_buffered_matmul, (64, 64, K), BM=64, BN=64, BK=8, STAGES=STAGES)


def test_rows_of_larger_matrices(device):
    """Rows that follow one another at a distance: read by four where it divides by four, else one by one."""
    for stride in (72, 73):
        A, B = (np.random.default_rng(0).standard_normal((40, stride), dtype=np.float32) for _ in range(2))
        C = device.full((40, 72), np.nan)
        a, b = device.array(A)[:, :40], device.array(B)[:, :72]
        for function in (PRODUCT.vectorised_matmul, PRODUCT.double_buffered_matmul):
            assert PRODUCT.width_of(b) == (4 if stride == 72 else 1)
            function(a, b, C)
            PRODUCT.check(A[:, :40], B[:, :72], device.numpy(C))


def test_a_wrong_element_is_noticed():
    random = np.random.default_rng(0)
    A, B = (random.standard_normal((64, 64), dtype=np.float32) for _ in range(2))
    C = A @ B
    PRODUCT.check(A, B, C)
    C[5, 7] += A[5, 3] * B[3, 7]
    with pytest.raises(AssertionError, match="off by"):
        PRODUCT.check(A, B, C)
    C[5, 7] = np.nan
    with pytest.raises(AssertionError):
        PRODUCT.check(A, B, C)


@weft.jit
def places(rows, cols, across: gl.constexpr):
    row, col = PRODUCT.place_in_block(across)
    rows[gl.thread_idx.x] = row
    cols[gl.thread_idx.x] = col


@pytest.mark.parametrize("across", [8, 16])
def test_lanes_that_shared_memory_serves_together_read_the_same(across):
    rows, cols = np.full(256, -1, np.int32), np.full(256, -1, np.int32)
    places[1](weft.LayoutTensor(rows), weft.LayoutTensor(cols), across, block=256)
    lane = np.arange(256)
    assert sorted(zip(rows, cols, strict=True)) == [(i // across, i % across) for i in range(256)]
    np.testing.assert_array_equal(rows, rows[lane ^ 2])
    np.testing.assert_array_equal(cols, cols[lane ^ 1])
    for warp in rows.reshape(-1, 32), cols.reshape(-1, 32):
        assert all(np.ptp(each) < 8 for each in warp), "16 bytes each: a warp reads at most 128 bytes, all banks once"


def test_copied_columns_are_in_different_banks():
    """A warp writes 8 columns of 4 rows of A at once."""
    tile = np.arange(8 * 132).reshape(8, 132)[:, :128].T
    for row in range(0, 128, 4):
        assert len(set((tile[row : row + 4, :8] % BANKS).ravel())) == BANKS


@compiles
@pytest.mark.parametrize(("rung", "copies"), [("register tile", 8 + 2), ("double buffered", 8 + 4)])
def test_sums_stay_in_registers(rung, copies):
    """A step along k is 64 multiplications and 4 loads of four numbers; there is little else."""
    compiled = multiply(Device("sim"), PRODUCT.RUNGS[rung], (128, 128, 512))
    made = compiled.front.machine_code
    assert (made.n_spills, made.stack) == (0, 0)
    assert made.n_regs <= 128
    counts = Counter(main_loop(compiled.asm["sass"]))
    assert (counts["FFMA"], counts["LDS.128"]) == (64 * 16, 4 * 16)
    assert sum(counts.values()) < 1.13 * counts["FFMA"]
    assert counts["LDGSTS.E"] + counts["LDGSTS.E.BYPASS.128"] == copies


# Transposes


@pytest.mark.parametrize("shape", [(1, 1), (3, 130), (64, 64), (100, 132), (97, 33), (8, 260)])
@pytest.mark.parametrize("name", TRANSPOSE.KERNELS)
def test_transpose(device, name, shape):
    src = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    dst = device.full(shape[::-1], np.nan)
    TRANSPOSE.KERNELS[name](device.array(src), dst)
    np.testing.assert_array_equal(device.numpy(dst), src.T)


@pytest.mark.parametrize("block", [(8, 32), (4, 64), (16, 16), (32, 8), (2, 3)])
def test_blocks_of_threads(device, block):
    src = np.random.default_rng(0).standard_normal((140, 68), dtype=np.float32)
    dst = device.full((68, 140), np.nan)
    TRANSPOSE.transpose_blocks(device.array(src), dst, block)
    np.testing.assert_array_equal(device.numpy(dst), src.T)


def banks(layout, size):
    """The bank of each element of a square tile."""
    return np.asarray(weft.LayoutTensor(np.arange(layout.cosize()), layout)).reshape(size, size) % BANKS


def test_padded_tiles_have_no_conflicts():
    tile = banks(TRANSPOSE.PADDED, TRANSPOSE.TILE)
    assert all(len(set(line)) == BANKS for line in (*tile, *tile.T))


def test_padded_blocks_have_no_conflicts():
    """Eight threads are served together: they write four numbers of rows four apart, and read those of a row."""
    tile = banks(TRANSPOSE.PADDED_BLOCKS, TRANSPOSE.BIG)
    for first in range(0, TRANSPOSE.BIG, 32):
        for row in range(4):
            assert len(set(tile[first + row : first + 32 : 4, :4].ravel())) == BANKS
    assert all(len(set(row[:32])) == BANKS for row in tile)


@compiles
@pytest.mark.parametrize("name", ["blocks", "blocks in tiles"])
def test_blocks_move_by_four(name):
    src = np.zeros((256, 256), np.float32)
    counts = Counter(mnemonics(TRANSPOSE.KERNELS[name](src, src.copy()).asm["sass"]))
    assert (counts["LDG.E.128"], counts["STG.E.128"]) == (4, 4)
    shared = {kind for kind in counts if kind.startswith(("LDS", "STS", "LDL", "STL"))}
    assert shared == ({"LDS.128", "STS.128"} if name == "blocks in tiles" else set())
