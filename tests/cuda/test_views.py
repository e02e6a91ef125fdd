"""Kernels over views cost what the same kernels cost with indices computed by hand."""

from __future__ import annotations

import re

import numpy as np

import weft
from tests.cuda.build import needs_nvrtc
from weft import AddressSpace, Layout, LayoutTensor
from weft import language as gl

pytestmark = needs_nvrtc
RNG = np.random.default_rng(5)


def instructions(kernel) -> list[str]:
    """Names of the instructions of a launched kernel, without jumps and padding."""
    found = re.findall(r"^\S+:\d+ +(?:@\S+ +)?([A-Z][\w.]+)", kernel.asm["sass"], re.MULTILINE)
    return [name for name in found if not name.startswith(("NOP", "BRA"))]


def count(found: list[str], name: str) -> int:
    return sum(each.startswith(name) for each in found)


@weft.jit
def add_view(x, y):
    i = gl.global_idx.x
    if i < x.dim(0):
        y[i] = x[i] + 1.0


@weft.jit
def add_pointers(x, y, n):
    i = gl.global_idx.x
    if i < n:
        gl.store(y + i, gl.load(x + i) + 1.0)


def test_add():
    x = RNG.random(1000, dtype=np.float32)
    outs = [np.full_like(x, np.nan) for _ in range(2)]
    view = add_view[(8,)](LayoutTensor(x), LayoutTensor(outs[0]), block=(128,))
    pointers = add_pointers[(8,)](x, outs[1], x.size, block=(128,))
    for out in outs:
        np.testing.assert_array_equal(out, x + 1)
    assert len(instructions(view)) <= len(instructions(pointers))


@weft.jit
def transpose_view(a, b):
    tile = LayoutTensor.stack_allocation(gl.float32, Layout.row_major(32, 33), address_space=AddressSpace.SHARED)
    source = a.tile[32, 32](gl.block_idx.y, gl.block_idx.x)
    target = b.tile[32, 32](gl.block_idx.x, gl.block_idx.y)
    tx, ty = gl.thread_idx.x, gl.thread_idx.y
    for i in range(0, 32, 8):
        tile[ty + i, tx] = source[ty + i, tx]
    gl.barrier()
    for i in range(0, 32, 8):
        target[ty + i, tx] = tile[tx, ty + i]


@weft.jit
def transpose_by_hand(a, b, rows: gl.constexpr, columns: gl.constexpr):
    tile = LayoutTensor.stack_allocation(gl.float32, Layout.row_major(32 * 33), address_space=AddressSpace.SHARED)
    tx, ty = gl.thread_idx.x, gl.thread_idx.y
    bx, by = gl.block_idx.x * 32, gl.block_idx.y * 32
    for i in range(0, 32, 8):
        tile[(ty + i) * 33 + tx] = gl.load(a + ((by + ty + i) * columns + bx + tx))
    gl.barrier()
    for i in range(0, 32, 8):
        gl.store(b + ((bx + ty + i) * rows + by + tx), tile[tx * 33 + ty + i])


def test_transpose():
    a = RNG.random((64, 96), dtype=np.float32)
    outs = [np.full((96, 64), np.nan, np.float32) for _ in range(2)]
    view = transpose_view[(3, 2)](LayoutTensor(a), LayoutTensor(outs[0]), block=(32, 8))
    by_hand = transpose_by_hand[(3, 2)](a, outs[1], 64, 96, block=(32, 8))
    for out in outs:
        np.testing.assert_array_equal(out, a.T)
    found = instructions(view)
    assert len(found) <= len(instructions(by_hand))
    assert count(found, "LDS") == count(found, "STS") == 4 and not count(found, "LDL")


@weft.jit
def product(a, b, c):
    """64x64 results of a block, 8x8 of a thread, 8 steps of k at a time."""
    a_tile = LayoutTensor.stack_allocation(gl.float32, Layout.row_major(8, 64), address_space=AddressSpace.SHARED)
    b_tile = LayoutTensor.stack_allocation(gl.float32, Layout.row_major(8, 64), address_space=AddressSpace.SHARED)
    acc = LayoutTensor.stack_allocation(gl.float32, Layout.row_major(8, 8), address_space=AddressSpace.LOCAL).fill(0)
    t = gl.thread_idx.x
    for k0 in range(a.dim(1) // 8):
        rows = a.tile[64, 8](gl.block_idx.y, k0).vectorize[1, 4]()
        columns = b.tile[8, 64](k0, gl.block_idx.x).vectorize[1, 4]()
        for half in gl.static_range(2):
            four = rows[t // 2 + 32 * half, t % 2]
            for j in gl.static_range(4):
                a_tile[t % 2 * 4 + j, t // 2 + 32 * half] = four[j]
            b_tile.vectorize[1, 4]()[t // 16 + 4 * half, t % 16] = columns[t // 16 + 4 * half, t % 16]
        gl.barrier()
        for k in range(8):
            left = a_tile.tile[1, 8](k, t // 8).vectorize[1, 4]()
            right = b_tile.tile[1, 8](k, t % 8).vectorize[1, 4]()
            for i in gl.static_range(8):
                for j in gl.static_range(8):
                    acc[i, j] += left[0, i // 4][i % 4] * right[0, j // 4][j % 4]
        gl.barrier()
    mine = c.tile[64, 64](gl.block_idx.y, gl.block_idx.x).tile[8, 8](t // 8, t % 8)
    mine.vectorize[1, 4]().copy_from(acc.vectorize[1, 4]())


def test_a_product_in_registers():
    a, b = RNG.random((128, 64), dtype=np.float32), RNG.random((64, 64), dtype=np.float32)
    c = np.full((128, 64), np.nan, np.float32)
    made = product[(1, 2)](LayoutTensor(a), LayoutTensor(b), LayoutTensor(c), block=(64,))
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-5)
    found = instructions(made)
    assert made.n_spills == 0 and not count(found, "LDL")
    steps, rest = divmod(count(found, "FFMA"), 64)
    assert steps and not rest
    assert count(found, "LDG.E.128") == 4 and count(found, "STG.E.128") == 16
    assert count(found, "LDS.128") == count(found, "LDS") == 4 * steps
