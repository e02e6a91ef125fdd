"""Matmul with a sum over ranks in one launch, on Hopper: every rank has a part of K, and C is the sum of all ranks' A @ B.

The tiles of C are divided among the ranks, and a rank ends up with the tiles it owns (reduce-scatter), or stores them on all
ranks (all-reduce). It begins with the tiles that others own: each goes to its owner by TMA as soon as it is multiplied, while
the next one already runs. The tiles of its own come last, when the others' contributions have arrived; they are fetched during
the multiplication, and added in one order, that of the hops from the owner.

`work` on the owner has room for each tile that others send: tile t of rank s is the rows [(s * share + t) * BLOCK_M, ...] of a
matrix of BLOCK_N columns, so that every tile is sent whole.

A program has two consumers, each with half of a tile's rows, which it multiplies, sends, takes and stores by itself. Flags: the
half of tile t of any share arrives on flag 2 * (t % PROGRAMS) + half. All tiles of that remainder are sent by one program,
wherever it is, and are taken by one program, both in the order of t. Behind these flags, each consumer has one on which it
meets its like on the other ranks: before it sends, since there the launch before may still read; and, where ranks store to each
other's result, when it has stored.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.ranks import meet
from weft.kernels.device.tiles import CONSUMERS, Blocks, first_of, grouped
from weft.language.nvidia.hopper import fence_async_global, fence_async_shared, mbarrier, tma

GROUP = gl.constexpr(8)
"""Rows of tiles that are walked together."""


@gl.aggregate
class Division:
    """The tiles of C and their owners. With `scatter` a rank owns `m` rows, otherwise a run of tiles."""

    m: gl.tensor
    rows: gl.tensor
    columns: gl.tensor
    share: gl.tensor
    program: gl.tensor
    programs: gl.constexpr
    scatter: gl.constexpr

    @jit
    def count(self, owner):
        """The number of tiles that a rank owns."""
        if self.scatter:
            return self.share
        return max(min(self.share, self.rows * self.columns - owner * self.share), 0)

    @jit
    def first(self, hop):
        """The first tile of this program in the share of the rank that is `hop` ranks ahead: the shares are one list of tiles,
        of which each program has every PROGRAMS-th."""
        return first_of(hop - 1, self.share, self.program, self.programs)

    @jit
    def place(self, owner, tile, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
        """Row and column of a rank's tile in its own share, and its row in A."""
        if self.scatter:
            row, column = grouped(tile, self.rows, self.columns, GROUP)
            return row * BLOCK_M, column * BLOCK_N, owner * self.m + row * BLOCK_M
        row, column = grouped(owner * self.share + tile, self.rows, self.columns, GROUP)
        return row * BLOCK_M, column * BLOCK_N, row * BLOCK_M


@jit
def load_tiles(work: gl.symmetric, a_desc, b_desc, blocks, division):
    """The second partition, of one warp: load the operands of all tiles."""
    BLOCK_M: gl.constexpr = a_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = b_desc.block_type.shape[1]
    step = 0
    for hop in range(1, work.world_size + 1):
        owner = (work.rank + hop) % work.world_size
        for tile in range(division.first(hop), division.count(owner), division.programs):
            _, column, row = division.place(owner, tile, BLOCK_M, BLOCK_N)
            step = blocks.load(a_desc, b_desc, row, column, step)


@gl.aggregate
class Half:
    """A consumer's half of a tile: its number, a buffer in shared memory and a barrier."""

    number: gl.constexpr
    buf: gl.shared_memory_descriptor
    arrived: gl.shared_memory_descriptor

    @jit
    def row(self, tile):
        """Its first row in `work`, or in a list of tiles' rows."""
        return (tile * CONSUMERS + self.number) * self.buf.shape[0]

    @jit
    def flag(self, program):
        """Its flag, of those of a program."""
        return program * CONSUMERS + self.number


@jit
def send_tiles(work: gl.symmetric, half, blocks, steps, division):
    """Multiply the tiles that others own, and send each; returns the next step.

    A tile is signalled when the next one has been multiplied: by then it has long arrived, and nobody waited for that."""
    ROWS: gl.constexpr = half.buf.shape[0]
    BLOCK_N: gl.constexpr = half.buf.shape[1]
    step = 0
    for hop in range(1, work.world_size):
        owner = (work.rank + hop) % work.world_size
        first, count = division.first(hop), division.count(owner)
        shape = [work.world_size * division.share * CONSUMERS * ROWS, BLOCK_N]
        target = tma.make_tensor_descriptor(work.peer(owner), shape, [BLOCK_N, 1], [ROWS, BLOCK_N], half.buf.layout)
        for tile in range(first, count, division.programs):
            sums, step = blocks.multiply(half.number, blocks.sums(), steps, step)
            tma.store_wait(0, read_only=False)
            if tile > first:
                gl.signal(work, owner, half.flag(first))
            half.buf.store(sums.to(half.buf.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(target, [half.row(work.rank * division.share + tile), 0], half.buf)
        tma.store_wait(0, read_only=False)
        if first < count:
            gl.signal(work, owner, half.flag(first))
    return step


@jit
def fetch(work: gl.symmetric, work_desc, half, hop, first, tile, share):
    """Wait for a tile from the rank that is `hop` ranks behind, and load it."""
    source = (work.rank + work.world_size - hop) % work.world_size
    gl.wait_signal(work, source, half.flag(first))
    fence_async_global()
    mbarrier.expect(half.arrived, work_desc.block_type.nbytes)
    tma.async_load(work_desc, [half.row(source * share + tile), 0], half.arrived, half.buf)


@jit
def add_tiles(work: gl.symmetric, work_desc, targets, half, blocks, steps, step, division):
    """Multiply the own tiles, add those of the other ranks, and store the sums to all targets.

    The first one to add is fetched when the multiplication has begun: the buffer it goes to is then free, and when the
    multiplication is done it is there."""
    BLOCK_M: gl.constexpr = CONSUMERS * half.buf.shape[0]
    BLOCK_N: gl.constexpr = half.buf.shape[1]
    first, fetched = division.first(work.world_size), 0
    for tile in range(first, division.count(work.rank), division.programs):
        row, column, _ = division.place(work.rank, tile, BLOCK_M, BLOCK_N)
        begun = steps // 4 if work.world_size > 1 else 0
        sums = blocks.sums()
        if work.world_size > 1:
            sums, step = blocks.multiply(half.number, sums, begun, step)
            tma.store_wait(0, read_only=True)
            fetch(work, work_desc, half, 1, first, tile, division.share)
        sums, step = blocks.multiply(half.number, sums, steps - begun, step)
        for hop in range(1, work.world_size):
            if hop > 1:
                fetch(work, work_desc, half, hop, first, tile, division.share)
            mbarrier.wait(half.arrived, fetched & 1)
            sums += half.buf.load(sums.type.layout).to(gl.float32)
            fetched += 1
        if work.world_size == 1:
            tma.store_wait(0, read_only=True)
        half.buf.store(sums.to(half.buf.dtype))
        fence_async_shared()
        for target in gl.static_range(len(targets)):
            tma.async_copy_shared_to_global(targets[target], [half.row(0) + row, column], half.buf)
    tma.store_wait(0, read_only=False)


@jit
def consume(number: gl.constexpr, work: gl.symmetric, out, work_desc, out_desc, bufs, arrived, blocks, steps, division):
    """A consumer."""
    half = Half(number, bufs.index(number), arrived.index(number))
    meeting = half.flag(division.programs + division.program)
    meet(work, meeting)
    step = send_tiles(work, half, blocks, steps, division)
    if division.scatter:
        add_tiles(work, work_desc, (out_desc,), half, blocks, steps, step, division)
    else:
        targets = ()
        for rank in gl.static_range(work.world_size):
            shape, strides = [out_desc.shape[0], out_desc.shape[1]], [out_desc.shape[1], 1]
            targets += (tma.make_tensor_descriptor(out.peer(rank), shape, strides, half.buf.shape, half.buf.layout),)
        add_tiles(work, work_desc, targets, half, blocks, steps, step, division)
        meet(work, meeting)


@jit
def matmul_sums(
    work: gl.symmetric, out, a_desc, b_desc, work_desc, out_desc, m, rows, columns, share,
    PROGRAMS: gl.constexpr, STAGES: gl.constexpr, SCATTER: gl.constexpr,
):  # fmt: skip
    """C = the sum over all ranks of A @ B: with SCATTER the rank's `m` rows in `out_desc`, otherwise all of it in the symmetric
    `out` of every rank."""
    blocks = Blocks.make(a_desc, b_desc, STAGES)
    bufs = gl.allocate_shared_memory(work_desc.dtype, [CONSUMERS, *work_desc.block_type.shape], work_desc.layout)
    arrived = mbarrier.allocate_mbarrier(batch=CONSUMERS)
    for half in gl.static_range(CONSUMERS):
        mbarrier.init(arrived.index(half), count=1)
    steps = gl.cdiv(a_desc.shape[1], a_desc.block_type.shape[1])
    division = Division(m, rows, columns, share, gl.program_id(0), PROGRAMS, SCATTER)
    gl.warp_specialize(
        [
            (consume, (0, work, out, work_desc, out_desc, bufs, arrived, blocks, steps, division)),
            (consume, (1, work, out, work_desc, out_desc, bufs, arrived, blocks, steps, division)),
            (load_tiles, (work, a_desc, b_desc, blocks, division)),
        ],
        [4, 1],
        [232, 40],
    )  # fmt: skip
