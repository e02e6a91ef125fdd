"""How gradients of attention get to global memory: those of queries, which many programs add to, and those of keys and values.

Gradients of queries are added up in float32, in pieces of 64 rows and columns. A piece has the order of a warpgroup's
accumulator: four neighbours are those of a thread, so that a warp adds 512 contiguous bytes with one instruction, and nothing
goes through shared memory. For programs that add in one order other warps watch and publish their
turns."""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.rings import barriers_of
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma

PIECE = 64
"""Rows and columns of a piece."""
ELEMENTS = PIECE * PIECE
SLOTS = 2
"""Blocks of queries that a program may add to at a time."""
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
class Turns:
    """The turns of a program that adds in order: barriers for blocks of queries that it may add to, and for those that both
    consumers have added to, two slots each."""

    allowed: gl.shared_memory_descriptor
    added: gl.shared_memory_descriptor

    @staticmethod
    @jit
    def make(consumers: gl.constexpr):
        """Nothing allowed."""
        return Turns(barriers_of(SLOTS, 2), barriers_of(SLOTS, consumers))

    @jit
    def add(self, total, number, i, piece):
        """Add a consumer's piece of block number `i` of the program when it is the program's turn."""
        mbarrier.wait(self.allowed.index(i % SLOTS), i // SLOTS & 1)
        add_piece(total, number, piece)

    @jit
    def done(self, i):
        """A consumer has added all of its pieces of block number `i`."""
        mbarrier.arrive(self.added.index(i % SLOTS), count=1)


@jit
def watch(turns, counters, share):
    """Wait for the program's turn at each block of queries, a block or two before consumers need it: `counters` has an integer
    for each block, which programs set in the order of their keys."""
    plan: gl.constexpr = share.extents.plan
    before = share.key // plan.block_n
    first, blocks = share.extents.visited(share.batch, share.key - plan.block_n)
    blocks = gl.where(share.key > 0, blocks, 0)
    member, query = 0, share.start()
    for i in range(share.tiles()):
        block = query // plan.block_m
        if (block >= first) & (block < first + blocks):
            counter = share.counter(counters, member, query)
            gl.atomic_poll(counter, before, sem="relaxed")
            # The poll's own fence would also wait for the program's additions on their way.
            gl.atomic_load(counter, sem="acquire")
        mbarrier.wait(turns.allowed.index(i % SLOTS), (i // SLOTS & 1) ^ 1)
        mbarrier.arrive(turns.allowed.index(i % SLOTS), count=1)
        member, query = share.following(member, query)


@jit
def publish(slot: gl.constexpr, turns, counters, share):
    """Set the counter of each block of queries of a slot when its consumers have added to it.

    The release is that of all their additions, which happen before the arrivals that this warp has waited for. It takes about
    as long as the MMAs of a block, so that every slot has a warp."""
    mbarrier.arrive(turns.allowed.index(slot), count=1)
    member, query = 0, share.start()
    for _ in gl.static_range(slot):
        member, query = share.following(member, query)
    for i in range(slot, share.tiles(), SLOTS):
        mbarrier.wait(turns.added.index(slot), i // SLOTS & 1)
        mbarrier.arrive(turns.allowed.index(slot), count=1)
        mine = share.key // share.extents.plan.block_n + 1
        gl.atomic_xchg(share.counter(counters, member, query), mine, sem="release")
        for _ in gl.static_range(SLOTS):
            member, query = share.following(member, query)


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
