"""Warp-specialized matrix products on Blackwell: one warp loads, one starts products, the others store tiles.

Sums are in tensor memory, of two tiles where they fit: while those of one are stored, the next one's are formed. With
`plan.cluster == 2` a program is a pair of blocks of threads that multiply together: each reads half of the rows of a tile's a
and half of the columns of its b, and tensor cores read the rest of b in the other's shared memory. The first block starts the
products of both.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.epilogue import below_of, buffers_of, store_part
from weft.kernels.device.rings import Operand, Place, Ring, Scale, barriers_of, blocks_of, request_both
from weft.kernels.device.schedules import Schedule
from weft.kernels.device.specialised import SIZES
from weft.kernels.device.taking import HandedOut, InTurn
from weft.kernels.plan import Plan
from weft.language.nvidia.blackwell import allocate_tensor_memory, mbarrier, tcgen05_commit, tcgen05_mma, tma


@gl.aggregate
class Plain:
    """Operands that are multiplied as they are; `weft.kernels.device.scaled` has others."""

    ring: Ring

    @staticmethod
    @jit
    def make(plan: gl.constexpr):
        """A ring whose slots are empty."""
        return Plain(Ring.make(plan, plan.pairs))

    @jit
    def bring(self, at, sources, row, column, block):
        """Ask for what a tile needs of a block along K."""
        plan: gl.constexpr = self.ring.plan
        a, b = sources
        request_both(self.ring, at, a, b, row * plan.block_m, column * plan.block_n, block * plan.block_k)

    @jit
    def multiply(self, at, acc, use_acc):
        """Start the product of the blocks in a slot."""
        tcgen05_mma(self.ring.left(at.slot), self.ring.right(at.slot), acc, use_acc=use_acc)


@jit
def bring_blocks(Tiles: gl.constexpr, shared, operands, free, sources, M, N, K):
    """Bring the blocks of all tiles of the program, each as soon as its slot is free, and ask for the tiles."""
    plan: gl.constexpr = operands.ring.plan
    schedule = Schedule.make(M, N, plan)
    at = operands.ring.start()
    each = Tiles.start(shared, schedule)
    while each.there():
        each.ask()
        row, column, part = schedule.place(each.number)
        first, end = blocks_of(K, part, plan)
        for block in range(first, end):
            mbarrier.wait(free.index(at.slot), at.phase ^ 1)
            operands.bring(at, sources, row, column, block)
            at = at.next()
        each = each.next()


@jit
def multiply_blocks(Tiles: gl.constexpr, shared, operands, free, sums, full, empty, M, N, K):
    """Start the products of all blocks, which give their slots back themselves, in both blocks of threads of a pair."""
    ring = operands.ring
    plan: gl.constexpr = ring.plan
    schedule = Schedule.make(M, N, plan)
    at = ring.start()
    turn = Place(0, 0, plan.tiles)
    each = Tiles.start(shared, schedule)
    while each.there():
        _, _, part = schedule.place(each.number)
        first, end = blocks_of(K, part, plan)
        mbarrier.wait(empty.index(turn.slot), turn.phase ^ 1)
        acc = sums.index(turn.slot)
        for block in range(first, end):
            mbarrier.wait(ring.ready.index(at.slot), at.phase)
            operands.multiply(at, acc, block > first)
            tcgen05_commit(free.index(at.slot))
            at = at.next()
        tcgen05_commit(full.index(turn.slot))
        turn = turn.next()
        each = each.next()


@jit
def store_sums(
    Tiles: gl.constexpr, shared, sums, full, empty, out, buffers, scale_a, scale_b, row_stride, column_stride, M, N,
    plan: gl.constexpr,
):  # fmt: skip
    """Store all tiles, a piece at a time. When the last one is in registers, another tile's sums may take its place."""
    schedule = Schedule.make(M, N, plan)
    turn = Place(0, 0, plan.tiles)
    each = Tiles.start(shared, schedule)
    pieces: gl.constexpr = plan.block_n // plan.out.width
    while each.there():
        row, column, part = schedule.place(each.number)
        below = below_of(part, M, N, plan)
        mbarrier.wait(full.index(turn.slot), turn.phase)
        acc = sums.index(turn.slot)
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
        each = each.next()
    if plan.out.described:
        tma.store_wait(pendings=0)


@jit
def divide_work(
    operands, sources, out, scale_a, scale_b, row_stride, column_stride, M, N, K, plan: gl.constexpr
):  # fmt: skip
    """The kernel, but for how operands are brought and multiplied."""
    Tiles: gl.constexpr = HandedOut if plan.handed else InTurn
    sums = allocate_tensor_memory(plan.sums, [plan.tiles, plan.block_m, plan.block_n], plan.acc)
    free, full = barriers_of(plan.stages, 1), barriers_of(plan.tiles, 1)
    empty = barriers_of(plan.tiles, 1, plan.pairs)
    shared = Tiles.prepare(plan)
    rest = (scale_a, scale_b, row_stride, column_stride, M, N, plan)
    gl.warp_specialize(
        [
            (store_sums, (Tiles, shared, sums, full, empty, out, buffers_of(plan), *rest)),
            (bring_blocks, (Tiles, shared, operands, free, sources, M, N, K)),
            (multiply_blocks, (Tiles, shared, operands, free, sums, full, empty, M, N, K)),
        ],
        [1, 1],
    )


@jit(do_not_specialize=SIZES)
def matmul_tensor_memory(
    a: Operand, b: Operand, out: gl.tensor, scale_a: Scale, scale_b: Scale, row_stride: int, column_stride: int,
    M: int, N: int, K: int, plan: gl.constexpr[Plan],
) -> None:  # fmt: skip
    """The product of operands that both have descriptors; see the module."""
    divide_work(Plain.make(plan), (a, b), out, scale_a, scale_b, row_stride, column_stride, M, N, K, plan)
