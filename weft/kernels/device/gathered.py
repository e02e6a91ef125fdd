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
from weft.kernels.device.tiles import Blocks
from weft.language.nvidia.hopper import fence_async_global, fence_async_shared, tma


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
    a: gl.symmetric, a_desc, b_desc, columns, blocks, m, chunk_rows, chunks, program,
    COPIERS: gl.constexpr, CONSUMERS: gl.constexpr,
):  # fmt: skip
    """Wait for each chunk, and load the operands of this program's tiles of it: of each chunk every CONSUMERS-th.

    A warp of its own does so: the warps that multiply wait for operands only."""
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
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
                row, column = first + tile // columns * BLOCK_M, tile % columns * BLOCK_N
                step = blocks.load(a_desc, b_desc, row, column, step)


@jit
def tiles_of(m, chunk_rows, chunk, BLOCK_M: gl.constexpr):
    """The tiles of rows in a chunk."""
    return gl.cdiv(min(chunk_rows, m - chunk * chunk_rows), BLOCK_M)


@jit
def multiply(
    a: gl.symmetric, c_desc, columns, steps, blocks, c_buf, m, chunk_rows, chunks, program, CONSUMERS: gl.constexpr
):
    """Multiply and store this program's tiles, in the order in which they are loaded."""
    BLOCK_M: gl.constexpr = c_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = c_desc.block_type.shape[1]
    step = 0
    for hop in range(a.world_size):
        source = (a.rank + hop) % a.world_size
        for chunk in range(chunks):
            first = source * m + chunk * chunk_rows
            for tile in range(program, tiles_of(m, chunk_rows, chunk, BLOCK_M) * columns, CONSUMERS):
                sums, step = blocks.multiply(steps, step)
                tma.store_wait(0, read_only=True)
                c_buf.store(sums.to(c_desc.dtype))
                fence_async_shared()
                tma.async_copy_shared_to_global(
                    c_desc, [first + tile // columns * BLOCK_M, tile % columns * BLOCK_N], c_buf
                )
    tma.store_wait(0)


@jit
def send_or_multiply(
    a: gl.symmetric, c_desc, columns, steps, blocks, c_buf, m, K, chunk_rows, chunks,
    COPIERS: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK: gl.constexpr, LINE: gl.constexpr,
):  # fmt: skip
    """The first partition: it copies in the first programs, and multiplies in the others."""
    program = gl.program_id(0)
    if program < COPIERS:
        send(a, m, K, chunk_rows, chunks, program, COPIERS, CONSUMERS, BLOCK, LINE)
    else:
        multiply(a, c_desc, columns, steps, blocks, c_buf, m, chunk_rows, chunks, program - COPIERS, CONSUMERS)


@jit
def load_where_multiplied(
    a: gl.symmetric, a_desc, b_desc, columns, blocks, m, chunk_rows, chunks,
    COPIERS: gl.constexpr, CONSUMERS: gl.constexpr,
):  # fmt: skip
    """The second partition, of one warp: it loads in the programs that multiply."""
    program = gl.program_id(0) - COPIERS
    if program >= 0:
        load_tiles(a, a_desc, b_desc, columns, blocks, m, chunk_rows, chunks, program, COPIERS, CONSUMERS)


@jit
def gather_matmul(
    a: gl.symmetric, a_desc, b_desc, c_desc, m, K, chunk_rows, chunks,
    COPIERS: gl.constexpr, CONSUMERS: gl.constexpr, STAGES: gl.constexpr, BLOCK: gl.constexpr, LINE: gl.constexpr,
):  # fmt: skip
    """C = A @ B; `a` has the rows of this rank at first, and those of all ranks in the end."""
    blocks = Blocks.make(a_desc, b_desc, STAGES)
    c_buf = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    columns = gl.cdiv(c_desc.shape[1], c_desc.block_type.shape[1])
    steps = gl.cdiv(K, a_desc.block_type.shape[1])
    gl.warp_specialize(
        [
            (send_or_multiply, (a, c_desc, columns, steps, blocks, c_buf, m, K, chunk_rows, chunks, COPIERS, CONSUMERS,
                                BLOCK, LINE)),
            (load_where_multiplied, (a, a_desc, b_desc, columns, blocks, m, chunk_rows, chunks, COPIERS, CONSUMERS)),
        ],
        [1],
        [40],
    )  # fmt: skip
