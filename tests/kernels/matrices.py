"""Matrices in kernels under test: layouts of every kind for 64 x 32, and helpers that load and store a whole one."""

from __future__ import annotations

import weft
from weft import language as gl

M, N = 64, 32
LAYOUTS = {
    "rows": gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]),
    "columns": gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1]),
    "across": gl.BlockedLayout([2, 2], [2, 16], [2, 2], [0, 1]),
    "repeated": gl.BlockedLayout([1, 1], [32, 1], [4, 1], [1, 0]),
    "mma": gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8]),
    "linear": gl.DistributedLinearLayout(
        [[0, 1], [0, 16], [32, 0], [0, 8]], [[1, 0], [0, 2], [2, 0], [0, 4], [4, 0]], [[8, 8], [16, 0]], [], [M, N]
    ),
}  # fmt: skip


@weft.jit
def load_matrix(x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    """A contiguous matrix as a tile."""
    i, j = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    return gl.load(x + i[:, None] * N + j[None, :])


@weft.jit
def store_matrix(out, tile, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    """A tile as a contiguous matrix."""
    i, j = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * N + j[None, :], tile)
