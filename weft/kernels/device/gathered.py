"""All-gather and matmul in one launch, on Hopper: C = A @ B, where each rank has a shard of the rows of A at first.

In every program a warp stores parts of the rank's shard to the other ranks, by TMA through buffers of its own, while the other
warps multiply. They begin with the rank's own shard, for which they need not wait, and go on with the next ranks'. Shards are
sent in the order in which their receivers need them, in pieces of a few rows; a chunk, of whole tiles of rows, is multiplied as
soon as all of its pieces have arrived.

Flags: that of a chunk and a receiving program is `chunk * PROGRAMS + program`, with a signal for each piece. Behind these, each
program has one on which it meets its like on other ranks first, since the matrix there may still be read by the launch before.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.ranks import meet
from weft.kernels.device.tiles import CONSUMERS, Blocks, first_of, grouped
from weft.language.nvidia.hopper import fence_async_global, fence_async_shared, mbarrier, tma


@jit
def signal_flags(x: gl.symmetric, rank, first, COUNT: gl.constexpr):
    """Signal COUNT flags from `first` on: a tile for each bit of COUNT."""
    for bit in gl.static_range(12):
        SIZE: gl.constexpr = 1 << bit
        if COUNT & SIZE:
            flags = gl.arange(0, SIZE, gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
            gl.signal(x, rank, first + COUNT // (2 * SIZE) * (2 * SIZE) + flags)


@gl.aggregate
class Gather:
    """What is gathered: `m` rows of each rank, in `chunks` of `chunk_rows`, of `pieces` of `piece_rows` each."""

    m: gl.tensor
    chunks: gl.tensor
    chunk_rows: gl.constexpr
    piece_rows: gl.constexpr
    pieces: gl.constexpr
    programs: gl.constexpr


@jit
def copy_strips(strip_desc, target, strips, first_row, source, across, bufs, bars, count):
    """Copy `strips` strips of a matrix, in row-major order, to the same place on another rank; returns the number of strips
    copied so far. The load of each strip overlaps the store of the strip before."""
    BUFFERS: gl.constexpr = bufs.shape[0]
    ROWS: gl.constexpr = strip_desc.block_type.shape[0]
    COLUMNS: gl.constexpr = strip_desc.block_type.shape[1]
    for i in range(strips + 1):
        if i < strips:
            slot = (count + i) % BUFFERS
            tma.store_wait(BUFFERS - 2, read_only=True)
            mbarrier.expect(bars.index(slot), strip_desc.block_type.nbytes)
            place = [source + first_row + i // across * ROWS, i % across * COLUMNS]
            tma.async_load(strip_desc, place, bars.index(slot), bufs.index(slot))
        if i > 0:
            slot = (count + i - 1) % BUFFERS
            mbarrier.wait(bars.index(slot), (count + i - 1) // BUFFERS & 1)
            place = [source + first_row + (i - 1) // across * ROWS, (i - 1) % across * COLUMNS]
            tma.async_copy_shared_to_global(target, place, bufs.index(slot))
    return count + strips


@jit
def send(a: gl.symmetric, strip_desc, bufs, bars, gather):
    """A warp of its own: store this rank's rows to all other ranks, and signal each piece."""
    program = gl.program_id(0)
    ROWS: gl.constexpr = strip_desc.block_type.shape[0]
    columns = strip_desc.shape[1]
    across = gl.cdiv(columns, strip_desc.block_type.shape[1])
    pieces, count = gather.chunks * gather.pieces, 0
    meet(a, gather.chunks * gather.programs + program)
    for hop in range(a.world_size - 1):
        # The rank behind this one needs these rows first.
        receiver = (a.rank + a.world_size - 1 - hop) % a.world_size
        shape = [a.world_size * gather.m, columns]
        target = tma.make_tensor_descriptor(
            a.peer(receiver), shape, [columns, 1], strip_desc.block_type.shape, strip_desc.layout
        )
        for piece in range(first_of(hop, pieces, program, gather.programs), pieces, gather.programs):
            chunk = piece // gather.pieces
            first_row = chunk * gather.chunk_rows + piece % gather.pieces * gather.piece_rows
            # In the last chunk there may be fewer rows. Every piece is signalled.
            strips = max(min(gather.piece_rows, gather.m - first_row), 0) // ROWS * across
            count = copy_strips(strip_desc, target, strips, first_row, a.rank * gather.m, across, bufs, bars, count)
            tma.store_wait(0, read_only=False)
            signal_flags(a, receiver, chunk * gather.programs, gather.programs)


@jit
def load_tiles(a: gl.symmetric, a_desc, b_desc, rows, columns, blocks, gather):
    """A warp of its own: wait for each chunk, and load the operands of this program's tiles of it."""
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    GROUP: gl.constexpr = gather.chunk_rows // BLOCK_M
    program, step = gl.program_id(0), 0
    for hop in range(a.world_size):
        source = (a.rank + hop) % a.world_size
        tile = first_of(hop, rows * columns, program, gather.programs)
        for chunk in range(gather.chunks):
            if hop > 0:
                gl.wait_signal(a, source, chunk * gather.programs + program, count=gather.pieces)
                fence_async_global()
            while tile < min((chunk + 1) * GROUP, rows) * columns:
                row, column = grouped(tile, rows, columns, GROUP)
                step = blocks.load(a_desc, b_desc, source * gather.m + row * BLOCK_M, column * BLOCK_N, step)
                tile += gather.programs


@jit
def multiply(half: gl.constexpr, a: gl.symmetric, c_desc, rows, columns, steps, blocks, c_bufs, gather):
    """A consumer: multiply and store its half of this program's tiles, in the order in which they are loaded."""
    ROWS: gl.constexpr = c_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = c_desc.block_type.shape[1]
    GROUP: gl.constexpr = gather.chunk_rows // (CONSUMERS * ROWS)
    step, c_buf = 0, c_bufs.index(half)
    for hop in range(a.world_size):
        first_row = (a.rank + hop) % a.world_size * gather.m + half * ROWS
        first = first_of(hop, rows * columns, gl.program_id(0), gather.programs)
        for tile in range(first, rows * columns, gather.programs):
            sums, step = blocks.multiply(half, blocks.sums(), steps, step)
            tma.store_wait(0, read_only=True)
            c_buf.store(sums.to(c_desc.dtype))
            fence_async_shared()
            row, column = grouped(tile, rows, columns, GROUP)
            tma.async_copy_shared_to_global(c_desc, [first_row + row * CONSUMERS * ROWS, column * BLOCK_N], c_buf)
    tma.store_wait(0)


@jit
def gather_matmul(
    a: gl.symmetric, a_desc, b_desc, c_desc, strip_desc, m, chunks, CHUNK_ROWS: gl.constexpr, PIECE_ROWS: gl.constexpr,
    PROGRAMS: gl.constexpr, STAGES: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    """C = A @ B; `a` has the rows of this rank at first, and those of all ranks in the end."""
    blocks = Blocks.make(a_desc, b_desc, STAGES)
    c_bufs = gl.allocate_shared_memory(c_desc.dtype, [CONSUMERS, *c_desc.block_type.shape], c_desc.layout)
    bufs = gl.allocate_shared_memory(strip_desc.dtype, [BUFFERS, *strip_desc.block_type.shape], strip_desc.layout)
    bars = mbarrier.allocate_mbarrier(batch=BUFFERS)
    for slot in gl.static_range(BUFFERS):
        mbarrier.init(bars.index(slot), count=1)
    gather = Gather(m, chunks, CHUNK_ROWS, PIECE_ROWS, CHUNK_ROWS // PIECE_ROWS, PROGRAMS)
    rows = m // a_desc.block_type.shape[0]
    columns = gl.cdiv(c_desc.shape[1], c_desc.block_type.shape[1])
    steps = gl.cdiv(a_desc.shape[1], a_desc.block_type.shape[1])
    gl.warp_specialize(
        [
            (multiply, (0, a, c_desc, rows, columns, steps, blocks, c_bufs, gather)),
            (multiply, (1, a, c_desc, rows, columns, steps, blocks, c_bufs, gather)),
            (load_tiles, (a, a_desc, b_desc, rows, columns, blocks, gather)),
            (send, (a, strip_desc, bufs, bars, gather)),
        ],
        [4, 1, 1],
        [232, 40, 40],
    )  # fmt: skip
