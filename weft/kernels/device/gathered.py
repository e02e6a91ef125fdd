"""All-gather and matmul in one launch, on Hopper: C = A @ B, where each rank has a shard of the rows of A at first.

The first COPIERS programs of a rank store its shard to all other ranks, chunk by chunk, and signal each chunk to every program
that multiplies there. These, CONSUMERS of them, begin with the rank's own shard, for which they need not wait, and go on with
the next ranks', each chunk as soon as it has come. A chunk is a number of whole tiles of rows.

Flags: that of a chunk and a program that multiplies is `chunk * CONSUMERS + program`, with one signal from each copier of the
chunk's rank. Behind these, each copier has one on which it meets its like on other ranks first, since the matrix on a rank may
still be read by the launch before.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.ranks import meet
from weft.language.nvidia.hopper import (
    fence_async_global,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@jit
def signal_flags(x: gl.symmetric, rank, first, COUNT: gl.constexpr):
    """Signal COUNT flags from `first` on: a tile for each bit of COUNT."""
    for bit in gl.static_range(12):
        SIZE: gl.constexpr = 1 << bit
        if COUNT & SIZE:
            flags = gl.arange(0, SIZE, gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
            gl.signal(x, rank, first + COUNT // (2 * SIZE) * (2 * SIZE) + flags)


@jit
def send(
    a: gl.symmetric, m, K, chunk_rows, chunks, copier,
    COPIERS: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK: gl.constexpr, LINE: gl.constexpr,
):  # fmt: skip
    """Store this rank's rows to all other ranks, and signal each chunk."""
    meet(a, chunks * CONSUMERS + copier)
    for chunk in range(chunks):
        first = (a.rank * m + chunk * chunk_rows) * K
        size = min(chunk_rows, m - chunk * chunk_rows) * K
        for block in range(copier, gl.cdiv(size, BLOCK), COPIERS):
            at = block * BLOCK + gl.arange(0, BLOCK, LINE)
            rows = gl.load(a.local + (first + at), at < size)
            for hop in gl.static_range(1, a.world_size):
                gl.store(a.peer((a.rank + hop) % a.world_size) + (first + at), rows, at < size)
        for hop in gl.static_range(1, a.world_size):
            signal_flags(a, (a.rank + hop) % a.world_size, chunk * CONSUMERS, CONSUMERS)


@jit
def load_tiles(
    a: gl.symmetric, a_desc, b_desc, columns, a_bufs, b_bufs, ready, free, m, chunk_rows, chunks, program,
    COPIERS: gl.constexpr, CONSUMERS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Wait for each chunk, and load the operands of this program's tiles of it: of each chunk every CONSUMERS-th.

    A warp of its own does so: the warps that multiply wait for operands only."""
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    step = 0
    for hop in range(a.world_size):
        source = (a.rank + hop) % a.world_size
        for chunk in range(chunks):
            if hop > 0:
                gl.wait_signal(a, source, chunk * CONSUMERS + program, count=COPIERS)
                fence_async_global()
            first = source * m + chunk * chunk_rows
            for tile in range(program, tiles_of(m, chunk_rows, chunk, BLOCK_M) * columns, CONSUMERS):
                for k in range(0, a_desc.shape[1], BLOCK_K):
                    slot = step % STAGES
                    mbarrier.wait(free.index(slot), (step // STAGES & 1) ^ 1)
                    bar = ready.index(slot)
                    mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
                    tma.async_load(a_desc, [first + tile // columns * BLOCK_M, k], bar, a_bufs.index(slot))
                    tma.async_load(b_desc, [k, tile % columns * BLOCK_N], bar, b_bufs.index(slot))
                    step += 1


@jit
def tiles_of(m, chunk_rows, chunk, BLOCK_M: gl.constexpr):
    """The tiles of rows in a chunk."""
    return gl.cdiv(min(chunk_rows, m - chunk * chunk_rows), BLOCK_M)


@jit
def multiply(
    a: gl.symmetric, c_desc, columns, steps, a_bufs, b_bufs, c_buf, ready, free, m, chunk_rows, chunks, program,
    CONSUMERS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Multiply and store this program's tiles, in the order in which they are loaded."""
    BLOCK_M: gl.constexpr = c_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = c_desc.block_type.shape[1]
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 16])
    step = 0
    for hop in range(a.world_size):
        source = (a.rank + hop) % a.world_size
        for chunk in range(chunks):
            first = source * m + chunk * chunk_rows
            for tile in range(program, tiles_of(m, chunk_rows, chunk, BLOCK_M) * columns, CONSUMERS):
                sums = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, SUMS)
                for k in range(steps):
                    slot = step % STAGES
                    mbarrier.wait(ready.index(slot), step // STAGES & 1)
                    sums = warpgroup_mma(a_bufs.index(slot), b_bufs.index(slot), sums, is_async=True)
                    sums = warpgroup_mma_wait(1, deps=(sums,))
                    # The MMA before this one has read its operands.
                    mbarrier.arrive(free.index((step + STAGES - 1) % STAGES), count=1, pred=k > 0)
                    step += 1
                sums = warpgroup_mma_wait(0, deps=(sums,))
                mbarrier.arrive(free.index((step + STAGES - 1) % STAGES), count=1)
                tma.store_wait(0, read_only=True)
                c_buf.store(sums.to(c_desc.dtype))
                fence_async_shared()
                tma.async_copy_shared_to_global(
                    c_desc, [first + tile // columns * BLOCK_M, tile % columns * BLOCK_N], c_buf
                )
    tma.store_wait(0)


@jit
def send_or_multiply(
    a: gl.symmetric, c_desc, columns, steps, a_bufs, b_bufs, c_buf, ready, free, m, K, chunk_rows, chunks,
    COPIERS: gl.constexpr, CONSUMERS: gl.constexpr, STAGES: gl.constexpr, BLOCK: gl.constexpr, LINE: gl.constexpr,
):  # fmt: skip
    """The first partition: it copies in the first programs, and multiplies in the others."""
    program = gl.program_id(0)
    if program < COPIERS:
        send(a, m, K, chunk_rows, chunks, program, COPIERS, CONSUMERS, BLOCK, LINE)
    else:
        multiply(
            a, c_desc, columns, steps, a_bufs, b_bufs, c_buf, ready, free, m, chunk_rows, chunks, program - COPIERS,
            CONSUMERS, STAGES,
        )  # fmt: skip


@jit
def load_where_multiplied(
    a: gl.symmetric, a_desc, b_desc, columns, a_bufs, b_bufs, ready, free, m, chunk_rows, chunks,
    COPIERS: gl.constexpr, CONSUMERS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The second partition, of one warp: it loads in the programs that multiply."""
    program = gl.program_id(0) - COPIERS
    if program >= 0:
        load_tiles(
            a, a_desc, b_desc, columns, a_bufs, b_bufs, ready, free, m, chunk_rows, chunks, program, COPIERS, CONSUMERS,
            STAGES,
        )  # fmt: skip


@jit
def gather_matmul(
    a: gl.symmetric, a_desc, b_desc, c_desc, m, K, chunk_rows, chunks,
    COPIERS: gl.constexpr, CONSUMERS: gl.constexpr, STAGES: gl.constexpr, BLOCK: gl.constexpr, LINE: gl.constexpr,
):  # fmt: skip
    """C = A @ B; `a` has the rows of this rank at first, and those of all ranks in the end."""
    a_bufs = gl.allocate_shared_memory(a_desc.dtype, [STAGES, *a_desc.block_type.shape], a_desc.layout)
    b_bufs = gl.allocate_shared_memory(b_desc.dtype, [STAGES, *b_desc.block_type.shape], b_desc.layout)
    c_buf = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(ready.index(slot), count=1)
        mbarrier.init(free.index(slot), count=1)
    columns = gl.cdiv(c_desc.shape[1], c_desc.block_type.shape[1])
    steps = gl.cdiv(K, a_desc.block_type.shape[1])
    gl.warp_specialize(
        [
            (send_or_multiply, (a, c_desc, columns, steps, a_bufs, b_bufs, c_buf, ready, free, m, K, chunk_rows, chunks,
                                COPIERS, CONSUMERS, STAGES, BLOCK, LINE)),
            (load_where_multiplied, (a, a_desc, b_desc, columns, a_bufs, b_bufs, ready, free, m, chunk_rows, chunks,
                                     COPIERS, CONSUMERS, STAGES)),
        ],
        [1],
        [40],
    )  # fmt: skip
