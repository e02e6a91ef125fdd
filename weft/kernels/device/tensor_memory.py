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
from weft.kernels.device.epilogue import Target
from weft.kernels.device.rings import (
    Batch,
    Given,
    Operand,
    Operands,
    Position,
    Ring,
    barriers_of,
    blocks_of,
    load_both,
    of_batch,
)
from weft.kernels.device.schedulers import Grid, begin, prepare
from weft.kernels.device.schedules import Schedule
from weft.kernels.device.specialised import SIZES
from weft.kernels.plan import Plan
from weft.language.nvidia.blackwell import (
    allocate_tensor_memory,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tensor_memory_descriptor,
)


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
    def load_block(self, at, sources, row, column, block, part, batch):
        """Issue the loads of a tile's block along K."""
        plan: gl.constexpr = self.ring.plan
        a, b = sources
        left, right = of_batch(a, batch, 1, part, plan.a, plan), of_batch(b, batch, 2, part, plan.b, plan)
        load_both(self.ring, at, left, right, row * plan.rows, column * plan.columns, block * plan.block_k)

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
def load_blocks(shared, operands, free, sources, M, N, K, batch):
    """The producer: load the blocks of all tiles of the program, each as soon as its slot is free, and request the tiles."""
    plan: gl.constexpr = operands.ring.plan
    schedule = Schedule.make(M, N, batch, plan)
    at = operands.ring.start()
    tile = first_tile(shared, schedule, plan)
    while tile.valid():
        tile.request_next()
        row, column, part = schedule.place(tile.number)
        first, end = blocks_of(K, part, plan)
        for block in range(first, end):
            mbarrier.wait(free.index(at.slot), at.phase ^ 1)
            operands.load_block(at, sources, row, column, block, part, batch)
            at = at.next()
        tile = tile.next()


@jit
def issue_mmas(shared, operands, free, accumulators, full, empty, M, N, K, batch):
    """The MMA issuer: issue the MMAs of all tiles. Slots are released by commits, in both CTAs of a pair."""
    ring = operands.ring
    plan: gl.constexpr = ring.plan
    schedule = Schedule.make(M, N, batch, plan)
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


@gl.aggregate
class Held:
    """An accumulator tile in tensor memory. Once its last piece is in registers, it is released for another tile: `empty` is
    its barrier."""

    acc: tensor_memory_descriptor
    empty: gl.shared_memory_descriptor
    last: gl.constexpr

    @jit
    def piece(self, i: gl.constexpr, down: gl.constexpr, right: gl.constexpr, form: gl.constexpr):
        """Piece `i`, which begins `right` columns behind the tile's first."""
        x = self.acc.slice(right, form.width, dim=1).load()
        if right + form.width == self.last:
            mbarrier.arrive(self.empty, count=1)
        return x


@jit
def store_tiles(shared, accumulators, full, empty, target):
    """The epilogue: store all tiles."""
    plan: gl.constexpr = target.plan
    schedule = Schedule.make(target.M, target.N, target.batch, plan)
    turn = Position(0, 0, plan.tiles)
    tile = first_tile(shared, schedule, plan)
    while tile.valid():
        row, column, part = schedule.place(tile.number)
        mbarrier.wait(full.index(turn.slot), turn.phase)
        held = Held(accumulators.index(turn.slot), empty.index(turn.slot), plan.block_n)
        target.store(held, plan.out.height, row * plan.rows, column, part, 0)
        turn = turn.next()
        tile = tile.next()
    target.wait()


@jit
def run_roles(operands, sources, out, given, batch, row_stride, column_stride, M, N, K, plan: gl.constexpr):
    """The kernel's three roles; `operands` defines how blocks are loaded and multiplied."""
    chain.join(plan)
    accumulators = allocate_tensor_memory(plan.acc_type, [plan.tiles, plan.block_m, plan.block_n], plan.acc)
    free, full = barriers_of(plan.stages, 1), barriers_of(plan.tiles, 1)
    empty = barriers_of(plan.tiles, 1, plan.pairs)
    shared = prepare(plan.schedule, ROLES, plan.pairs)
    target = Target.make(out, given, row_stride, column_stride, M, N, batch, plan)
    gl.warp_specialize(
        [
            (store_tiles, (shared, accumulators, full, empty, target)),
            (load_blocks, (shared, operands, free, sources, M, N, K, batch)),
            (issue_mmas, (shared, operands, free, accumulators, full, empty, M, N, K, batch)),
        ],
        [1, 1],
    )


@jit(do_not_specialize=SIZES)
def matmul_tensor_memory(
    a: Operand, b: Operands, out: gl.tensor, given: Given, batch: Batch, row_stride: int, column_stride: int, M: int, N: int,
    K: int, plan: gl.constexpr[Plan],
) -> None:  # fmt: skip
    """The matmul of operands that both have descriptors; see the module."""
    run_roles(Plain.make(plan), (a, b), out, given, batch, row_stride, column_stride, M, N, K, plan)
