"""How gradients of attention get to global memory: those of queries, which many programs add to, and those of keys and values.

Gradients of queries are added up in float32, in pieces of 64 rows and columns. A piece has the order of a warpgroup's
accumulator: four neighbours are those of a thread, so that a warp adds 512 contiguous bytes with one instruction, and nothing
goes through shared memory. Programs that add in one order hand their pieces on to a warp that waits for the turn of each."""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.rings import barriers_of
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma

PIECE = 64
"""Rows and columns of a piece."""
ELEMENTS = PIECE * PIECE
THREADS = gl.DistributedLinearLayout(
    reg_bases=[[1], [2], [128], [256], [512]], lane_bases=[[4], [8], [16], [32], [64]], warp_bases=[[1024], [2048]],
    block_bases=[], shape=[ELEMENTS],
)  # fmt: skip
"""The threads of an accumulator's elements in the order of memory."""


@jit
def in_order(piece):
    """The elements of a piece in the order of memory. Of an accumulator of 64 rows and columns the rows are those of warps (4),
    registers (2) and lanes (8), the columns those of registers (8), lanes (4) and registers (2)."""
    return piece.reshape([4, 2, 8, 8, 4, 2]).permute([0, 3, 2, 4, 1, 5]).reshape([ELEMENTS])


@jit
def elements_of(total, number, layout: gl.constexpr):
    """The addresses of a piece."""
    return total + gl.cast(number, gl.int64) * ELEMENTS + gl.arange(0, ELEMENTS, layout)


@jit
def add_piece(total, number, piece):
    """Add to a piece in memory."""
    elements = in_order(piece)
    gl.atomic_add(elements_of(total, number, elements.type.layout), elements, sem="relaxed")


@jit
def loaded_piece(total, number):
    """A piece from memory, in the layout of an accumulator."""
    elements = gl.load(elements_of(total, number, THREADS))
    return elements.reshape([4, 8, 8, 4, 2, 2]).permute([0, 4, 2, 1, 3, 5]).reshape([PIECE, PIECE])


@gl.aggregate
class Handed:
    """Pieces of both consumers on their way to memory, with barriers for those that are full and free."""

    pieces: gl.shared_memory_descriptor
    filled: gl.shared_memory_descriptor
    drained: gl.shared_memory_descriptor
    plan: gl.constexpr

    @staticmethod
    @jit
    def make(plan: gl.constexpr):
        """Both free."""
        pieces = gl.allocate_shared_memory(gl.float32, [2, PIECE, PIECE], plan.piece_layout)
        return Handed(pieces, barriers_of(2, 1), barriers_of(2, 1), plan)

    @jit
    def put(self, which: gl.constexpr, i, piece):
        """Hand on piece number `i` of a consumer."""
        mbarrier.wait(self.drained.index(which), (i & 1) ^ 1)
        self.pieces.index(which).reshape([ELEMENTS]).store(in_order(piece))
        fence_async_shared()
        mbarrier.arrive(self.filled.index(which), count=1)


@jit
def reduce(handed, total, turns, share):
    """Add the pieces of consumers to memory, in one round or in two, when it is the program's turn: `turns` has an integer for
    each block of queries, which programs set in the order of their keys.

    That a block has been added is published with the next one, which is on its way meanwhile: waiting for it at once would take
    longer than the consumers need for a block."""
    plan: gl.constexpr = handed.plan
    mine = share.key // plan.block_n + 1
    first, blocks = share.extents.visited(share.batch, share.key - plan.block_n)
    blocks = gl.where(share.key > 0, blocks, 0)
    member, query = 0, share.start()
    turn = turns
    for i in range(share.tiles()):
        before, turn = turn, turns + 1 + share.row(member, query) // plan.block_m
        block = query // plan.block_m
        if (block >= first) & (block < first + blocks):
            gl.atomic_poll(turn, mine - 1)
        for part in gl.static_range(plan.rounds):
            for which in gl.static_range(2):
                mbarrier.wait(handed.filled.index(which), part if plan.rounds == 2 else i & 1)
                piece = share.piece(member, query, which * plan.rounds + part)
                tma.async_atomic_add(total, [piece * PIECE, 0], handed.pieces.index(which))
                if part + which == 0 and i > 0:
                    # Before the wait for this piece: behind it, a call took 1.15 times as long on an H200.
                    tma.store_wait(1, read_only=False)
                    gl.atomic_xchg(before, mine, sem="release")
                tma.store_wait(0)
                mbarrier.arrive(handed.drained.index(which), count=1)
        member, query = share.following(member, query)
    if share.tiles() > 0:
        tma.store_wait(0, read_only=False)
        gl.atomic_xchg(turn, mine, sem="release")


@jit
def store_gradients(memory, which: gl.constexpr, grad_k, grad_v, dk, dv, keys_at, values_at):
    """Store a consumer's gradients of keys and values through the memory of its keys and values. The other consumer may still
    read keys; values it reads no more."""
    plan: gl.constexpr = memory.plan
    k, v = memory.k.index(which), memory.v.index(which)
    mbarrier.arrive(memory.closing.index(0), count=1)
    v.store(grad_v.to(plan.dtype))
    mbarrier.wait(memory.closing.index(0), 0)
    k.store(grad_k.to(plan.dtype))
    fence_async_shared()
    tma.async_store(dv, values_at, v.reshape(dv.block_type.shape))
    tma.async_store(dk, keys_at, k.reshape(dk.block_type.shape))
    tma.store_wait(0)
