"""Warp-specialized matmul on Blackwell: a producer warp, a warp that issues MMAs, and epilogue warps.

Accumulators are in tensor memory, for two tiles if they fit, so that the epilogue of one overlaps the mainloop of the next.
With `plan.cluster == 2` a program is a pair of CTAs that execute MMAs together (cta_group::2): each loads half of the rows of a
tile's a and half of the columns of its b, and tensor cores read the other half of b from the peer's shared memory. The first
CTA issues the MMAs of both.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device import chain
from weft.kernels.device.epilogue import below_of, buffers_of, store_part
from weft.kernels.device.rings import Operand, Position, Ring, Scale, barriers_of, blocks_of, load_both
from weft.kernels.device.schedulers import Grid, begin, prepare
from weft.kernels.device.schedules import Schedule
from weft.kernels.device.specialised import SIZES
from weft.kernels.plan import Plan
from weft.language.nvidia.blackwell import allocate_tensor_memory, mbarrier, tcgen05_commit, tcgen05_mma, tma


@gl.aggregate
class Plain:
    """Operands without scales; `weft.kernels.device.scaled` has those with scales."""

    ring: Ring

    @staticmethod
    @jit
    def make(plan: gl.constexpr):
        """An empty ring."""
        return Plain(Ring.make(plan, plan.pairs))

    @jit
    def load_block(self, at, sources, row, column, block):
        """Issue the loads of a tile's block along K."""
        plan: gl.constexpr = self.ring.plan
        a, b = sources
        load_both(self.ring, at, a, b, row * plan.block_m, column * plan.block_n, block * plan.block_k)

    @jit
    def multiply(self, at, acc, use_acc):
        """Issue the MMA of a slot's blocks."""
        tcgen05_mma(self.ring.left(at.slot), self.ring.right(at.slot), acc, use_acc=use_acc)


ROLES = 3
"""Producer, MMA issuer and epilogue, which see the same tiles."""


@jit
def first_tile(shared, schedule, plan: gl.constexpr):
    """The program's first tile; each split of an output tile counts as one."""
    return begin(Grid(schedule.tiles, 1, 1, None, plan.schedule), None, shared)


@jit
def load_blocks(shared, operands, free, sources, M, N, K):
    """The producer: load the blocks of all tiles of the program, each as soon as its slot is free, and request the tiles."""
    plan: gl.constexpr = operands.ring.plan
    schedule = Schedule.make(M, N, plan)
    at = operands.ring.start()
    tile = first_tile(shared, schedule, plan)
    while tile.valid():
        tile.request_next()
        row, column, part = schedule.place(tile.number)
        first, end = blocks_of(K, part, plan)
        for block in range(first, end):
            mbarrier.wait(free.index(at.slot), at.phase ^ 1)
            operands.load_block(at, sources, row, column, block)
            at = at.next()
        tile = tile.next()


@jit
def issue_mmas(shared, operands, free, accumulators, full, empty, M, N, K):
    """The MMA issuer: issue the MMAs of all tiles. Slots are released by commits, in both CTAs of a pair."""
    ring = operands.ring
    plan: gl.constexpr = ring.plan
    schedule = Schedule.make(M, N, plan)
    at = ring.start()
    turn = Position(0, 0, plan.tiles)
    tile = first_tile(shared, schedule, plan)
    while tile.valid():
        _, _, part = schedule.place(tile.number)
        first, end = blocks_of(K, part, plan)
        mbarrier.wait(empty.index(turn.slot), turn.phase ^ 1)
        acc = accumulators.index(turn.slot)
        for block in range(first, end):
            mbarrier.wait(ring.ready.index(at.slot), at.phase)
            operands.multiply(at, acc, block > first)
            tcgen05_commit(free.index(at.slot))
            at = at.next()
        tcgen05_commit(full.index(turn.slot))
        turn = turn.next()
        tile = tile.next()


@jit
def store_tiles(
    shared, accumulators, full, empty, out, buffers, scale_a, scale_b, row_stride, column_stride, M, N,
    plan: gl.constexpr,
):  # fmt: skip
    """The epilogue: store all tiles piece by piece. Once the last piece is in registers, the accumulator is released for
    another tile."""
    schedule = Schedule.make(M, N, plan)
    turn = Position(0, 0, plan.tiles)
    tile = first_tile(shared, schedule, plan)
    pieces: gl.constexpr = plan.block_n // plan.out.width
    while tile.valid():
        row, column, part = schedule.place(tile.number)
        below = below_of(part, M, N, plan)
        mbarrier.wait(full.index(turn.slot), turn.phase)
        acc = accumulators.index(turn.slot)
        for i in gl.static_range(pieces):
            x = acc.slice(i * plan.out.width, plan.out.width, dim=1).load()
            if i == pieces - 1:
                mbarrier.arrive(empty.index(turn.slot), count=1)
            i_column = column * plan.block_n + i * plan.out.width
            store_part(
                i, out, buffers, x, row * plan.block_m, i_column, below, scale_a, scale_b, row_stride, column_stride, M, N,
                plan,
            )  # fmt: skip
        turn = turn.next()
        tile = tile.next()
    if plan.out.described:
        tma.store_wait(pendings=0)


@jit
def run_roles(
    operands, sources, out, scale_a, scale_b, row_stride, column_stride, M, N, K, plan: gl.constexpr
):  # fmt: skip
    """The kernel's three roles; `operands` defines how blocks are loaded and multiplied."""
    chain.join(plan)
    accumulators = allocate_tensor_memory(plan.acc_type, [plan.tiles, plan.block_m, plan.block_n], plan.acc)
    free, full = barriers_of(plan.stages, 1), barriers_of(plan.tiles, 1)
    empty = barriers_of(plan.tiles, 1, plan.pairs)
    shared = prepare(plan.schedule, ROLES, plan.pairs)
    rest = (scale_a, scale_b, row_stride, column_stride, M, N, plan)
    gl.warp_specialize(
        [
            (store_tiles, (shared, accumulators, full, empty, out, buffers_of(plan), *rest)),
            (load_blocks, (shared, operands, free, sources, M, N, K)),
            (issue_mmas, (shared, operands, free, accumulators, full, empty, M, N, K)),
        ],
        [1, 1],
    )


@jit(do_not_specialize=SIZES)
def matmul_tensor_memory(
    a: Operand, b: Operand, out: gl.tensor, scale_a: Scale, scale_b: Scale, row_stride: int, column_stride: int,
    M: int, N: int, K: int, plan: gl.constexpr[Plan],
) -> None:  # fmt: skip
    """The matmul of operands that both have descriptors; see the module."""
    run_roles(Plain.make(plan), (a, b), out, scale_a, scale_b, row_stride, column_stride, M, N, K, plan)
