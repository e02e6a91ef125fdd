"""A grouped product whose results end at any row: stored by TMA through a ragged descriptor, or from registers under masks.

Rows of A belong to groups of unequal sizes, one after another, and each group is multiplied by a matrix of its own. A block of
C that reaches beyond its group must not overwrite the next group's rows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import weft
from benchmarks import harness
from benchmarks.report import Goal, Line
from weft import language as gl
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from weft.nvidia.hopper import TensorDescriptor
from weft.nvidia.ragged_tma import async_store_ragged, create_ragged_descriptor

TITLE = "Grouped product with ragged ends, bf16"
NEEDS_GPU = True
GROUPS, N = 32, 4096
DEPTHS = (256, 512, 2048)
BLOCK_M, BLOCK_N, BLOCK_K, STAGES = 128, 128, 64, 4
MMA = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[8, 1], instr_shape=[16, 128, 16])
ROWS = gl.BlockedLayout([1, 8], [2, 16], [8, 1], [1, 0])


@weft.jit
def load_step(a, b, row, weights, column, step, steps, full, a_bufs, b_bufs, STAGES: gl.constexpr):
    slot, more = step % STAGES, step < steps
    bar = full.index(slot)
    mbarrier.expect(bar, a.block_type.nbytes + b.block_type.nbytes, pred=more)
    tma.async_load(a, [row, step * a.block_shape[1]], bar, a_bufs.index(slot), pred=more)
    tma.async_load(b, [weights + step * a.block_shape[1], column], bar, b_bufs.index(slot), pred=more)


@weft.jit
def grouped(
    a, b, ragged, c, tiles, K, N, how: gl.constexpr, mma: gl.constexpr, rows: gl.constexpr, smem: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Each program computes a tile, of which `tiles` has the group, the group's first row and size, and the row within."""
    BLOCK_M: gl.constexpr = a.block_shape[0]
    BLOCK_N: gl.constexpr = b.block_shape[1]
    tile = tiles + gl.program_id(1) * 4
    group, start, size, row = gl.load(tile), gl.load(tile + 1), gl.load(tile + 2), gl.load(tile + 3)
    column = gl.program_id(0) * BLOCK_N
    steps = K // a.block_shape[1]
    a_bufs = gl.allocate_shared_memory(a.dtype, [STAGES, *a.block_shape], a.layout)
    b_bufs = gl.allocate_shared_memory(b.dtype, [STAGES, *b.block_shape], b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for slot in gl.static_range(STAGES):
        mbarrier.init(full.index(slot), count=1)
    for step in gl.static_range(STAGES - 1):
        load_step(a, b, start + row, group * K, column, step, steps, full, a_bufs, b_bufs, STAGES)
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, mma)
    for step in range(steps):
        mbarrier.wait(full.index(step % STAGES), step // STAGES & 1)
        acc = warpgroup_mma(a_bufs.index(step % STAGES), b_bufs.index(step % STAGES), acc, is_async=True)
        # The MMA of the step before has read its buffers, which the next load fills.
        acc = warpgroup_mma_wait(1, [acc])
        load_step(a, b, start + row, group * K, column, step + STAGES - 1, steps, full, a_bufs, b_bufs, STAGES)
    result = warpgroup_mma_wait(0, [acc]).to(gl.bfloat16)
    if how == "TMA":
        buffer = gl.allocate_shared_memory(gl.bfloat16, [BLOCK_M, BLOCK_N], smem)
        buffer.store(result)
        fence_async_shared()
        async_store_ragged(ragged, start, size, [row, column], buffer)
        tma.store_wait(0)
    else:
        kept: gl.constexpr = mma if how == "accumulator layout" else rows
        i = row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, kept))
        j = column + gl.arange(0, BLOCK_N, gl.SliceLayout(0, kept))
        places = c + (start + i).to(gl.int64)[:, None] * N + j[None, :]
        gl.store(places, gl.convert_layout(result, kept), (i < size)[:, None])


WAYS = ("TMA", "rows", "accumulator layout")


def tiles_of(sizes: np.ndarray, block: int) -> np.ndarray:
    """Group, first row of the group, its size, and row within it, of each tile."""
    groups = enumerate(zip(np.cumsum(sizes) - sizes, sizes, strict=True))
    return np.array(
        [(group, start, size, row) for group, (start, size) in groups for row in range(0, size, block)], np.int32
    )


def launch(a: Any, b: Any, c: Any, tiles: Any, count: int, how: str) -> Any:
    """C = A times the matrices of its groups; `b` is these matrices, one below the other."""
    K, columns = a.shape[1], b.shape[1]
    layouts = [
        gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16) for block in ([BLOCK_M, BLOCK_K], [BLOCK_K, BLOCK_N])
    ]
    smem = gl.NVMMASharedLayout.get_default_for([BLOCK_M, BLOCK_N], gl.bfloat16)
    return grouped[columns // BLOCK_N, count](
        TensorDescriptor.from_tensor(a, [BLOCK_M, BLOCK_K], layouts[0]),
        TensorDescriptor.from_tensor(b, [BLOCK_K, BLOCK_N], layouts[1]),
        create_ragged_descriptor(c, [BLOCK_M, BLOCK_N]), c, tiles, K, columns, how, MMA, ROWS, smem, STAGES, num_warps=8,
    )  # fmt: skip


def run(quick: bool) -> list[Line]:
    """TFLOP/s of useful rows, of groups of 1 to 512 rows."""
    import torch

    sizes = np.random.default_rng(1).integers(1, 513, GROUPS)
    total = int(sizes.sum())
    table = tiles_of(sizes, BLOCK_M)
    tiles = torch.from_numpy(table).cuda()
    lines: list[Line] = []
    for K in DEPTHS:
        a, b = (
            torch.randn((rows, columns), device="cuda").bfloat16() for rows, columns in ((total, K), (GROUPS * K, N))
        )
        c = torch.empty((total, N), device="cuda", dtype=torch.bfloat16)
        parts = zip(a.split(sizes.tolist()), b.split(K), strict=True)
        wanted = torch.cat([part @ matrix for part, matrix in parts])

        def correct(wanted: Any = wanted, c: Any = c) -> bool:
            return torch.allclose(c.float(), wanted.float(), rtol=2e-2, atol=0.25)

        variants = [
            harness.Variant(how, partial(launch, a, b, c, tiles, len(table), how), partial(c.fill_, 7.0), correct)
            for how in WAYS
        ]  # fmt: skip
        found = harness.measure(variants, harness.GraphClock(), 5 if quick else 20)
        speeds = {how: 2e-9 * total * N * K / ms for how, ms in found.items()}
        others = {how: speeds[how] for how in WAYS[1:] if how in speeds}
        lines.append(Line(f"K = {K}", speeds.get("TMA"), "TFLOP/s", others, (Goal(1.0, "rows"), Goal(1.0, WAYS[2]))))
    return lines
