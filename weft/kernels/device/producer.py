"""The producer: loads blocks of both operands into shared memory, ahead of the consumers.

If both operands have descriptors, the producer is one warp that issues TMA loads. Otherwise it is four warps, which copy the
operand without a descriptor themselves: with cp.async if 4 bytes or more are contiguous and aligned, else through registers,
which also allows transposing the block on the way.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device import chain
from weft.kernels.device.arrivals import wait_for_rows
from weft.kernels.device.rings import blocks_of, first_of, half_of, load_both, load_for_cluster, load_tile, of_batch
from weft.kernels.device.schedules import Schedule
from weft.language.nvidia.hopper import async_copy, fence_async_shared, mbarrier


@jit
def produce(
    ring,
    free,
    a,
    b,
    a_row,
    a_k,
    b_row,
    b_k,
    M,
    N,
    K,
    batch,
    gathered,
    across: gl.constexpr,
    plan: gl.constexpr,
):
    """Load the blocks of all tiles of the program, each as soon as its slot is free, and gathered rows are there."""
    chain.join(plan)
    schedule = Schedule.make(M, N, batch, plan, gathered, across)
    at, arrived = ring.start(), 0
    for index in range(schedule.count()):
        row, column, part = schedule.tile(index)
        first, end = blocks_of(K, part, plan)
        if gathered is not None:
            if across:
                arrived = wait_for_rows(gathered, arrived, column * plan.columns, plan.columns)
            else:
                arrived = wait_for_rows(gathered, arrived, row * plan.rows, plan.rows)
        left, right = of_batch(a, batch, 1, part, plan.a, plan), of_batch(b, batch, 2, part, plan.b, plan)
        for block in range(first, end):
            k = block * plan.block_k
            mbarrier.wait(free.index(at.slot), at.phase ^ 1)
            if plan.cluster > 1:
                load_for_cluster(ring, at, left, right, row * plan.rows, column * plan.columns, k)
            elif plan.described:
                load_both(ring, at, left, right, row * plan.rows, column * plan.columns, k)
            else:
                if plan.expected:
                    mbarrier.expect(ring.ready.index(at.slot), plan.expected)
                for part in gl.static_range(plan.parts):
                    memory, source = ring.a.index(at.slot * plan.parts + part), half_of(left, part, plan.across[0])
                    first_row = row * plan.rows + first_of(part, plan)
                    load_block(memory, ring, at, source, first_row, k, M, K, a_row, a_k, plan.a)
                for half in gl.static_range(plan.sent):
                    memory, source = ring.b.index(at.slot * plan.sent + half), half_of(right, half, plan.across[1])
                    load_block(memory, ring, at, source, column * plan.columns, k, N, K, b_row, b_k, plan.b)
                if plan.loads:
                    fence_async_shared()
                    mbarrier.arrive(ring.ready.index(at.slot), count=1)
                if plan.copies:
                    async_copy.mbarrier_arrive(ring.ready.index(at.slot), increment_count=False)
            at = at.next()


@jit
def load_block(buffer, ring, at, source, row, k, rows, depth, row_stride, k_stride, side: gl.constexpr):
    """Load one operand's block by the operand's path; `rows` and `depth` are the operand's full extents."""
    if side.path == "descriptor":
        load_tile(source, row, k, ring.ready.index(at.slot), buffer, side)
    else:
        source = gl.multiple_of(source, side.unit * side.dtype.itemsize)
        if side.contiguous == "k":
            row_stride, depth = gl.multiple_of(row_stride, side.unit), gl.multiple_of(depth, side.unit)
        if side.contiguous == "rows":
            k_stride, rows = gl.multiple_of(k_stride, side.unit), gl.multiple_of(rows, side.unit)
        if side.along_k:
            copy_block(buffer, source, row, k, rows, depth, row_stride, k_stride, side)
        else:
            copy_block(buffer, source, k, row, depth, rows, k_stride, row_stride, side)


@jit
def copy_block(buffer, source, i_first, j_first, i_extent, j_extent, i_stride, j_stride, side: gl.constexpr):
    """Copy a block [i, j], in its shared-memory orientation, from global memory; out-of-bounds elements are zero."""
    start = source + gl.cast(i_first, gl.int64) * i_stride + gl.cast(j_first, gl.int64) * j_stride
    for piece in gl.static_range(side.block[side.cut] // side.step):
        part = buffer.slice(piece * side.step, side.step, dim=side.cut)
        i = gl.arange(0, part.shape[0], gl.SliceLayout(1, side.registers)) + (piece * side.step if side.cut == 0 else 0)
        j = gl.arange(0, part.shape[1], gl.SliceLayout(0, side.registers)) + (piece * side.step if side.cut == 1 else 0)
        mask = (i < i_extent - i_first)[:, None] & (j < j_extent - j_first)[None, :]
        if side.path == "copies":
            # j is the contiguous dimension, otherwise the path would be "loads".
            pointers = start + i[:, None] * i_stride + j[None, :]
            async_copy.async_load(part, pointers, mask=mask)
        else:
            pointers = start + i[:, None] * i_stride + j[None, :] * j_stride
            part.store(gl.load(pointers, mask=mask, other=0))
