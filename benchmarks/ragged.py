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

NEEDS_GPU = True
GROUPS, N = 32, 4096
PROGRAMS = 132
DEPTHS = (256, 512, 2048)
BLOCK_M, BLOCK_N, BLOCK_K, STAGES = 128, 128, 64, 4
MMA = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[8, 1], instr_shape=[16, 128, 16])
ROWS = gl.BlockedLayout([1, 8], [2, 16], [8, 1], [1, 0])


@weft.jit
def place(tiles, number, columns, BLOCK_N: gl.constexpr):
    """Group, first row of the group, its size, row within it, and first column of a tile."""
    tile = tiles + number // (columns // BLOCK_N) * 4
    column = number % (columns // BLOCK_N) * BLOCK_N
    return gl.load(tile), gl.load(tile + 1), gl.load(tile + 2), gl.load(tile + 3), column


@weft.jit
def load_step(a, b, tiles, number, count, step, K, N, slot, full, a_bufs, b_bufs):
    """Issue the loads of one step of a tile, if there is such a tile; the tile and the step of the next load."""
    BLOCK_K: gl.constexpr = a.block_shape[1]
    more = number < count
    group, start, _, row, column = place(tiles, gl.minimum(number, count - 1), N, b.block_shape[1])
    bar = full.index(slot)
    mbarrier.expect(bar, a.block_type.nbytes + b.block_type.nbytes, pred=more)
    tma.async_load(a, [start + row, step * BLOCK_K], bar, a_bufs.index(slot), pred=more)
    tma.async_load(b, [group * K + step * BLOCK_K, column], bar, b_bufs.index(slot), pred=more)
    last = step == K // BLOCK_K - 1
    return gl.where(last, number + gl.num_programs(0), number), gl.where(last, 0, step + 1)


@weft.jit
def grouped(
    a, b, ragged, c, tiles, count, K, N, how: gl.constexpr, mma: gl.constexpr, rows: gl.constexpr, smem: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Each program computes every so many tiles; loads run ahead, into the next tile too."""
    BLOCK_M: gl.constexpr = a.block_shape[0]
    BLOCK_N: gl.constexpr = b.block_shape[1]
    steps = K // a.block_shape[1]
    a_bufs = gl.allocate_shared_memory(a.dtype, [STAGES, *a.block_shape], a.layout)
    b_bufs = gl.allocate_shared_memory(b.dtype, [STAGES, *b.block_shape], b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for slot in gl.static_range(STAGES):
        mbarrier.init(full.index(slot), count=1)
    if how == "TMA":
        buffer = gl.allocate_shared_memory(gl.bfloat16, [BLOCK_M, BLOCK_N], smem)
    ahead, ahead_step = gl.program_id(0), 0
    for slot in gl.static_range(STAGES - 1):
        ahead, ahead_step = load_step(a, b, tiles, ahead, count, ahead_step, K, N, slot, full, a_bufs, b_bufs)
    done = 0
    for number in range(gl.program_id(0), count, gl.num_programs(0)):
        acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, mma)
        for _ in range(steps):
            slot = done % STAGES
            mbarrier.wait(full.index(slot), done // STAGES & 1)
            acc = warpgroup_mma(a_bufs.index(slot), b_bufs.index(slot), acc, is_async=True)
            # The MMA of the step before has read its buffers, which the next load fills.
            acc = warpgroup_mma_wait(1, [acc])
            free = (done + STAGES - 1) % STAGES
            ahead, ahead_step = load_step(a, b, tiles, ahead, count, ahead_step, K, N, free, full, a_bufs, b_bufs)
            done += 1
        result = warpgroup_mma_wait(0, [acc]).to(gl.bfloat16)
        _, start, size, row, column = place(tiles, number, N, BLOCK_N)
        if how == "TMA":
            tma.store_wait(0)
            buffer.store(result)
            fence_async_shared()
            async_store_ragged(ragged, start, size, [row, column], buffer)
        else:
            kept: gl.constexpr = mma if how == "accumulator layout" else rows
            i = row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, kept))
            j = column + gl.arange(0, BLOCK_N, gl.SliceLayout(0, kept))
            places = c + (start + i).to(gl.int64)[:, None] * N + j[None, :]
            gl.store(places, gl.convert_layout(result, kept), (i < size)[:, None])
    tma.store_wait(0)


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
    tile = [BLOCK_M, BLOCK_N]
    every = count * columns // BLOCK_N
    return grouped[min(PROGRAMS, every)](
        TensorDescriptor.from_tensor(a, [BLOCK_M, BLOCK_K], layouts[0]),
        TensorDescriptor.from_tensor(b, [BLOCK_K, BLOCK_N], layouts[1]),
        create_ragged_descriptor(c, tile), c, tiles, every, K, columns, how, MMA, ROWS, smem, STAGES, num_warps=8,
    )  # fmt: skip


def product(quick: bool) -> list[Line]:
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
        lines.append(Line(f"K = {K}", speeds.get("TMA"), "TFLOP/s", others, (Goal(1.0, WAYS[2]),)))
    return lines


@weft.jit
def visit(x, given, out, how: gl.constexpr, layout: gl.constexpr, smem: gl.constexpr, VISITS: gl.constexpr):
    """Load the first block of one matrix after another, each through a descriptor of its own (or all through one)."""
    buffer = gl.allocate_shared_memory(gl.float32, given.block_shape, smem)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    total = gl.zeros(given.block_shape, gl.float32, layout)
    for number in range(VISITS):
        if how == "made":
            base = x + number * 1024
            desc = tma.make_tensor_descriptor(base, [8, 32], [32, 1], given.block_shape, smem)
        elif how == "updated":
            desc = tma.update_tensor_descriptor(given, x + number * 1024, [8, None])
        else:
            desc = given
        mbarrier.expect(bar, given.block_type.nbytes)
        tma.async_load(desc, [0, 0], bar, buffer)
        mbarrier.wait(bar, number & 1)
        total += buffer.load(layout)
    gl.store(out + gl.program_id(0), gl.sum(gl.sum(total, 1), 0))


def descriptors(quick: bool) -> list[Line]:
    """Microseconds per matrix, of the descriptor and a load of 1 KiB through it."""
    import torch

    visits = 256
    x, out = torch.ones((visits, 32, 32), device="cuda"), torch.empty(PROGRAMS, device="cuda")
    smem = gl.NVMMASharedLayout.get_default_for([8, 32], gl.float32)
    given = TensorDescriptor.from_tensor(x[0], [8, 32], smem)
    layout = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])

    def job(how: str) -> None:
        visit[PROGRAMS](x, given, out, how, layout, smem, visits)

    variants = [
        harness.Variant(how, partial(job, how), partial(out.fill_, 7.0), lambda: bool((out == visits * 256).all()))
        for how in ("updated", "made", "one for all")
    ]
    found = {
        how: 1e3 * ms / visits for how, ms in harness.measure(variants, harness.CudaClock(), 5 if quick else 20).items()
    }
    others = {how: found[how] for how in ("made", "one for all") if how in found}
    return [Line("a descriptor and a load", found.get("updated"), "us", others, (Goal(1.0, "made", ceiling=True),))]


PARTS = {
    "product": ("Grouped product with ragged ends, bf16", product),
    "descriptors": ("Descriptors on the device: address and shape replaced, or all fields written", descriptors),
}
