"""Warps that bring blocks of both operands to shared memory, ahead of those that multiply them.

Where both operands have descriptors one warp asks TMA for blocks. Otherwise four warps copy what has none: with cp.async where
elements come in pieces of four bytes or more, else through registers, where a block can be turned over on its way.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.rings import blocks_of, request, request_both, request_for_cluster
from weft.kernels.device.schedules import Schedule
from weft.language.nvidia.hopper import async_copy, fence_async_shared, mbarrier


@jit
def produce(ring, free, both_free, a, b, a_row, a_k, b_row, b_k, M, N, K, plan: gl.constexpr):
    """Bring the blocks of all tiles of the program, each as soon as its slot is free.

    In a cluster, barriers of `both_free` say that a slot is so in both blocks."""
    schedule = Schedule.make(M, N, plan)
    at = ring.start()
    for index in range(schedule.count()):
        row, column, part = schedule.tile(index)
        first, end = blocks_of(K, part, plan)
        for block in range(first, end):
            k = block * plan.block_k
            mbarrier.wait(free.index(at.slot), at.phase ^ 1)
            if plan.cluster > 1:
                request_for_cluster(ring, both_free, at, a, b, row * plan.block_m, column * plan.block_n, k)
            elif plan.described:
                request_both(ring, at, a, b, row * plan.block_m, column * plan.block_n, k)
            else:
                if plan.expected:
                    mbarrier.expect(ring.ready.index(at.slot), plan.expected)
                bring(ring.a, ring, at, a, row * plan.block_m, k, M, K, a_row, a_k, plan.a)
                bring(ring.b, ring, at, b, column * plan.block_n, k, N, K, b_row, b_k, plan.b)
                if plan.loads:
                    fence_async_shared()
                    mbarrier.arrive(ring.ready.index(at.slot), count=1)
                if plan.copies:
                    async_copy.mbarrier_arrive(ring.ready.index(at.slot), increment_count=False)
            at = at.next()


@jit
def bring(memory, ring, at, source, row, k, rows, depth, row_stride, k_stride, side: gl.constexpr):
    """Bring one operand's block, by the operand's path; `rows` and `depth` are the operand's whole extents."""
    buffer = memory.index(at.slot)
    if side.path == "descriptor":
        request(source, row, k, ring.ready.index(at.slot), buffer, side)
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
    """Copy a block [i, j] as it lies in shared memory from a place in global memory; zeros beyond the extents."""
    start = source + gl.cast(i_first, gl.int64) * i_stride + gl.cast(j_first, gl.int64) * j_stride
    for piece in gl.static_range(side.block[side.cut] // side.step):
        part = buffer.slice(piece * side.step, side.step, dim=side.cut)
        i = gl.arange(0, part.shape[0], gl.SliceLayout(1, side.registers)) + (piece * side.step if side.cut == 0 else 0)
        j = gl.arange(0, part.shape[1], gl.SliceLayout(0, side.registers)) + (piece * side.step if side.cut == 1 else 0)
        mask = (i < i_extent - i_first)[:, None] & (j < j_extent - j_first)[None, :]
        if side.path == "copies":
            # Elements follow one another along j, or this would be another path.
            pointers = start + i[:, None] * i_stride + j[None, :]
            async_copy.async_load(part, pointers, mask=mask)
        else:
            pointers = start + i[:, None] * i_stride + j[None, :] * j_stride
            part.store(gl.load(pointers, mask=mask, other=0))
