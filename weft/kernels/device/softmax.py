"""Row softmax by clusters: the blocks of a cluster hold a row in their registers and exchange two numbers each.

A row is a tile [blocks, columns of a block]: each block has the maximum and the sum of its part. It sends both to every block
(st.async, 8 bytes), which counts the bytes of the others on its own mbarrier, so no block waits at a barrier of the cluster.
With one block there is nothing to send. Meanwhile the next row is copied to shared memory, if cp.async can: each thread copies
what it will hold, so threads do not wait for each other there either.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.language.nvidia.ampere import async_copy
from weft.language.nvidia.hopper import async_store, cluster, mbarrier

LOG2E: gl.constexpr = gl.constexpr(1.4426950408889634)
LEAST: gl.constexpr = gl.constexpr(-3.4028234663852886e38)
"""A maximum is at least this: of columns that are all -inf or masked off, -inf - -inf would be NaN."""


@jit
def fetch(buffer, src, at, inside, WHOLE: gl.constexpr):
    """Start to copy the block's part of a row to shared memory."""
    if WHOLE:
        async_copy.async_copy_global_to_shared(buffer, src + at)
    else:
        async_copy.async_copy_global_to_shared(buffer, src + at, mask=inside)
    async_copy.commit_group()


@jit
def softmax_rows(
    src: gl.tensor, dst: gl.tensor, rows: gl.tensor, cols: gl.tensor, src_stride: gl.tensor, dst_stride: gl.tensor,
    PART: gl.constexpr, WHOLE: gl.constexpr, AHEAD: gl.constexpr, layout: gl.constexpr, pairs: gl.constexpr, held: gl.constexpr,
    copies: gl.constexpr,
):  # fmt: skip
    """Rows of `cols` columns, of which each block holds PART, WHOLE if that is all of them. There are at most as many programs
    as rows. With AHEAD the next row is copied to shared memory meanwhile, which takes rows that are aligned. `layout`, `held`:
    a row over the blocks, in registers and in shared memory; `pairs`, `copies`: the numbers of all blocks, in each of them."""
    BLOCKS: gl.constexpr = gl.num_ctas()
    i = gl.arange(0, BLOCKS, gl.SliceLayout(1, layout))[:, None]
    j = gl.arange(0, PART, gl.SliceLayout(0, layout))[None, :]
    at = i * PART + j
    inside = at < cols
    if BLOCKS > 1:
        # Two buffers: a block that sends for one row has got all of the row before, so all have read the one before that.
        sent = gl.allocate_shared_memory(gl.float32, [2, BLOCKS, 2], copies)
        bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
        mbarrier.init(bars.index(0), count=1)
        mbarrier.init(bars.index(1), count=1)
        cluster.arrive()
    if AHEAD:
        buffer = gl.allocate_shared_memory(src.dtype.element_ty, [BLOCKS, PART], held)
        fetch(buffer, src + gl.program_id(0).to(gl.int64) * src_stride, at, inside, WHOLE)
    if BLOCKS > 1:
        cluster.wait()
    turn = 0
    for row in range(gl.program_id(0), rows, gl.num_programs(0)):
        if AHEAD:
            async_copy.wait_group(0)
            x = buffer.load(layout).to(gl.float32)
            if not WHOLE:
                x = gl.where(inside, x, float("-inf"))
            following = row + gl.num_programs(0)
            if following < rows:
                fetch(buffer, src + following.to(gl.int64) * src_stride, at, inside, WHOLE)
        else:
            x = gl.load(src + row.to(gl.int64) * src_stride + at, mask=inside, other=float("-inf")).to(gl.float32)
        peak = gl.maximum(gl.max(x, axis=1), LEAST)
        # Not one FMA: the product of a mask's -3e38 and log2(e) overflows.
        e = gl.exp2((x - peak[:, None]) * LOG2E)
        total = gl.sum(e, axis=1)
        if BLOCKS > 1:
            bar, part = bars.index(turn & 1), sent.index(turn & 1)
            mbarrier.expect(bar, part.nbytes_per_cta)
            async_store(part, gl.join(peak, total), bar)
            mbarrier.wait(bar, (turn >> 1) & 1)
            peaks, totals = gl.split(part.load(pairs))
            top = gl.max(peaks, axis=0)
            whole = gl.sum(totals * gl.exp2((peaks - top) * LOG2E), axis=0)
            factor = gl.exp2((peak - top) * LOG2E) / whole
            turn += 1
        else:
            factor = 1.0 / total
        y = (e * factor[:, None]).to(dst.dtype.element_ty)
        out = dst + row.to(gl.int64) * dst_stride + at
        if WHOLE:
            gl.store(out, y)
        else:
            gl.store(out, y, mask=inside)
