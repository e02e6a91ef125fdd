"""Matmul with a sum over ranks in one launch, on Hopper: every rank has a part of K, and C is the sum of all ranks' A @ B.

The tiles of C are divided among the ranks, and a rank ends up with the tiles it owns (reduce-scatter), or stores them on all
ranks (all-reduce). It begins with the tiles that others own: each goes to its owner by TMA as soon as it is multiplied, while
the next one already runs. The tiles of its own come last, when the others' contributions have arrived; they are fetched during
the multiplication, and added in one order, that of the hops from the owner.

`work` on the owner has room for each tile that others send: tile t of rank s is the rows [(s * share + t) * BLOCK_M, ...] of a
matrix of BLOCK_N columns, so that every tile is sent whole.

Flags: tile t of any share arrives on flag t % PROGRAMS. All tiles of that remainder are sent by one program, wherever it is,
and are taken by one program, both in the order of t. Behind these flags, each program has one on which it meets its like on the
other ranks: before it sends, since there the launch before may still read; and, where ranks store to each other's result, when
it has stored.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.ranks import meet
from weft.kernels.device.tiles import Blocks, grouped
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
        """The first tile of this program in the share of the rank so many hops ahead: the shares are one list of tiles, of
        which a program has every PROGRAMS-th."""
        return (self.program + self.programs - (hop - 1) * self.share % self.programs) % self.programs

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


@jit
def send_tiles(work: gl.symmetric, c_buf, blocks, steps, division):
    """Multiply the tiles that others own, and send each; returns the next step.

    A tile is signalled when the next one has been multiplied: by then it has long arrived, and nobody waited for that."""
    BLOCK_M: gl.constexpr = c_buf.shape[0]
    BLOCK_N: gl.constexpr = c_buf.shape[1]
    step = 0
    for hop in range(1, work.world_size):
        owner = (work.rank + hop) % work.world_size
        first, count = division.first(hop), division.count(owner)
        slots = work.rank * division.share * BLOCK_M
        shape = [work.world_size * division.share * BLOCK_M, BLOCK_N]
        target = tma.make_tensor_descriptor(work.peer(owner), shape, [BLOCK_N, 1], [BLOCK_M, BLOCK_N], c_buf.layout)
        for tile in range(first, count, division.programs):
            sums, step = blocks.multiply(steps, step)
            tma.store_wait(0, read_only=False)
            if tile > first:
                gl.signal(work, owner, first)
            c_buf.store(sums.to(c_buf.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(target, [slots + tile * BLOCK_M, 0], c_buf)
        tma.store_wait(0, read_only=False)
        if first < count:
            gl.signal(work, owner, first)
    return step


@jit
def fetch(work: gl.symmetric, work_desc, c_buf, arrived, hop, first, tile, share):
    """Wait for a tile from the rank so many hops behind, and load it."""
    source = (work.rank + work.world_size - hop) % work.world_size
    gl.wait_signal(work, source, first)
    fence_async_global()
    mbarrier.expect(arrived, work_desc.block_type.nbytes)
    tma.async_load(work_desc, [(source * share + tile) * c_buf.shape[0], 0], arrived, c_buf)


@jit
def add_tiles(work: gl.symmetric, work_desc, targets, c_buf, arrived, blocks, steps, step, division):
    """Multiply the own tiles, add those of the other ranks, and store the sums to all targets."""
    BLOCK_M: gl.constexpr = c_buf.shape[0]
    BLOCK_N: gl.constexpr = c_buf.shape[1]
    first, fetched = division.first(work.world_size), 0
    for tile in range(first, division.count(work.rank), division.programs):
        row, column, _ = division.place(work.rank, tile, BLOCK_M, BLOCK_N)
        tma.store_wait(0, read_only=True)
        if work.world_size > 1:
            fetch(work, work_desc, c_buf, arrived, 1, first, tile, division.share)
        sums, step = blocks.multiply(steps, step)
        for hop in range(1, work.world_size):
            if hop > 1:
                fetch(work, work_desc, c_buf, arrived, hop, first, tile, division.share)
            mbarrier.wait(arrived, fetched & 1)
            sums += c_buf.load(sums.type.layout).to(gl.float32)
            fetched += 1
        c_buf.store(sums.to(c_buf.dtype))
        fence_async_shared()
        for target in gl.static_range(len(targets)):
            tma.async_copy_shared_to_global(targets[target], [row, column], c_buf)
    tma.store_wait(0, read_only=False)


@jit
def send_and_add(work: gl.symmetric, out, work_desc, out_desc, c_buf, arrived, blocks, steps, division):
    """The first partition: it multiplies."""
    meeting = division.programs + division.program
    meet(work, meeting)
    step = send_tiles(work, c_buf, blocks, steps, division)
    if division.scatter:
        add_tiles(work, work_desc, (out_desc,), c_buf, arrived, blocks, steps, step, division)
    else:
        targets = ()
        for rank in gl.static_range(work.world_size):
            shape, strides = [out_desc.shape[0], out_desc.shape[1]], [out_desc.shape[1], 1]
            targets += (tma.make_tensor_descriptor(out.peer(rank), shape, strides, c_buf.shape, c_buf.layout),)
        add_tiles(work, work_desc, targets, c_buf, arrived, blocks, steps, step, division)
        meet(work, meeting)


@jit
def matmul_sums(
    work: gl.symmetric, out, a_desc, b_desc, work_desc, out_desc, m, rows, columns, share,
    PROGRAMS: gl.constexpr, STAGES: gl.constexpr, SCATTER: gl.constexpr,
):  # fmt: skip
    """C = the sum over all ranks of A @ B: with SCATTER the rank's `m` rows in `out_desc`, otherwise all of it in the symmetric
    `out` of every rank."""
    blocks = Blocks.make(a_desc, b_desc, STAGES)
    c_buf = gl.allocate_shared_memory(work_desc.dtype, work_desc.block_type.shape, work_desc.layout)
    arrived = mbarrier.allocate_mbarrier()
    mbarrier.init(arrived, count=1)
    steps = gl.cdiv(a_desc.shape[1], a_desc.block_type.shape[1])
    division = Division(m, rows, columns, share, gl.program_id(0), PROGRAMS, SCATTER)
    gl.warp_specialize(
        [
            (send_and_add, (work, out, work_desc, out_desc, c_buf, arrived, blocks, steps, division)),
            (load_tiles, (work, a_desc, b_desc, blocks, division)),
        ],
        [1],
        [40],
    )  # fmt: skip
