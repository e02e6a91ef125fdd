"""The ring of operand blocks in shared memory (the mainloop's pipeline stages), and TMA loads into it.

The barrier `ready` of a slot completes when its blocks have arrived. Both operands are indexed [rows, K]: rows of a, columns
of b.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from weft import language as gl
from weft.kernel import jit
from weft.language.nvidia.hopper import mbarrier, tma, warpgroup_mma

Operand: TypeAlias = "gl.tensor | tma.tensor_descriptor"
"""An operand: a pointer, or a descriptor."""
Operands: TypeAlias = "gl.tensor | tma.tensor_descriptor | tuple[Any, ...]"
"""An operand, or the two whose products stand side by side in a tile, or one above the other."""
Given: TypeAlias = "tuple[Any, ...] | None"
"""The operands of the epilogue: numbers, and pointers with strides."""
Batch: TypeAlias = "tuple[int, int, int, int] | None"
"""Of a batch the number of products, and the steps from one to the next of a, b and the output: in elements, or, for what has
a descriptor, in matrices of the descriptor. A step of 0 repeats the same matrix."""


@gl.aggregate
class Position:
    """A position in the ring: the slot, and the phase parity of its barriers, which flips with every lap."""

    slot: gl.tensor
    phase: gl.tensor
    stages: gl.constexpr

    @jit
    def next(self):
        """The next position."""
        last = self.slot == self.stages - 1
        return Position(gl.where(last, 0, self.slot + 1), self.phase ^ last.to(gl.int32), self.stages)

    @jit
    def skip(self, count):
        """The position `count` positions ahead."""
        slot = self.slot + count
        rounds = slot // self.stages
        return Position(slot - rounds * self.stages, self.phase ^ (rounds & 1), self.stages)


@gl.aggregate
class Ring:
    """Shared-memory buffers of both operands, `plan.stages` slots each, and the `ready` barriers of the slots."""

    a: gl.shared_memory_descriptor
    b: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    plan: gl.constexpr

    @staticmethod
    @jit
    def make(plan: gl.constexpr, pairs: gl.constexpr = False):
        """An empty ring. With `pairs`, both CTAs of a pair use the first one's barriers."""
        a = gl.allocate_shared_memory(plan.a.dtype, [plan.stages * plan.parts, *plan.a.block], plan.a.layout)
        b = gl.allocate_shared_memory(plan.b.dtype, [plan.stages * plan.sent, *plan.b.block], plan.b.layout)
        return Ring(a, b, barriers_of(plan.stages, plan.arrivals, pairs), plan)

    @jit
    def start(self):
        """The first position."""
        return Position(0, 0, self.plan.stages)

    @jit
    def left(self, slot, part: gl.constexpr = 0):
        """A block of a in a slot, [rows, K]; of stacked operands the consumer's of both."""
        plan: gl.constexpr = self.plan
        memory = self.a.index(slot * plan.parts + part * plan.across[0])
        if plan.stacked:
            # Both blocks are adjacent in shared memory, so together they are one.
            memory = memory.reinterpret(plan.a.dtype, plan.a_block, plan.a.layout)
        return memory if plan.a.along_k else memory.permute([1, 0])

    @jit
    def right(self, slot):
        """The block of b in a slot, [K, columns]."""
        plan: gl.constexpr = self.plan
        memory = self.b.index(slot * plan.sent)
        if plan.sent > 1:
            # The multicast parts are adjacent in shared memory, so together they are one block.
            memory = memory.reinterpret(plan.b.dtype, plan.b_block, plan.b.layout)
        if plan.b.along_k:
            return memory.permute([1, 0])
        return memory if plan.room == plan.block_n else memory.slice(0, plan.block_n, dim=1)


@jit
def barriers_of(stages: gl.constexpr, arrivals: gl.constexpr, pairs: gl.constexpr = False):
    """A barrier per slot with `arrivals` arrivals per phase; with `pairs`, that many from each CTA of the pair."""
    bars = mbarrier.allocate_mbarrier(batch=stages, two_ctas=pairs)
    for slot in gl.static_range(stages):
        mbarrier.init(bars.index(slot), count=arrivals)
    return bars


@jit
def load_tile(desc, row, k, bar, memory, side: gl.constexpr, pred=True, sender: gl.constexpr = None):
    """Issue the TMA load of an operand's block at a row and position along K; a `sender` CTA multicasts it to the cluster."""
    send: gl.constexpr = sender is not None
    first: gl.constexpr = sender if send else 0
    place = (row, k) if side.along_k else (k, row)
    if side.batched:
        desc, number = desc
        place = (number, *place)
        memory = memory.reinterpret(side.dtype, *side.box)
    tma.async_load(desc, place, bar, memory, pred=pred, multicast=send, sender=first)


@jit
def of_batch(source, batch, which: gl.constexpr, part, side: gl.constexpr, plan: gl.constexpr):
    """The matrix that a tile's part reads: the operand itself, or of a batch its descriptor and place there, or its pointer; of
    a gated product those of both operands.

    `which` is the operand's place in `batch`."""
    if not plan.batched:
        return source
    number = part // plan.splits
    if plan.across[which - 1] == 1:
        return one_of_batch(source, batch, which, number, side)
    found = ()
    for half in gl.static_range(plan.halves):
        found = (*found, one_of_batch(source[half], batch, which, number, side))
    return found


@jit
def one_of_batch(source, batch, which: gl.constexpr, number, side: gl.constexpr):
    """The matrix of a product of a batch, of one array."""
    if side.path == "descriptor":
        return source, number * batch[which]
    return source + gl.cast(number, gl.int64) * batch[which]


@jit
def load_both(ring, at, a, b, row, column, k, pred=True):
    """Issue the TMA loads of both operands' blocks into a slot, which must be free."""
    plan: gl.constexpr = ring.plan
    bar = ring.ready.index(at.slot)
    mbarrier.expect(bar, plan.expected, pred=pred)
    for part in gl.static_range(plan.parts):
        memory, source = ring.a.index(at.slot * plan.parts + part), half_of(a, part, plan.across[0])
        load_tile(source, row + first_of(part, plan), k, bar, memory, plan.a, pred)
    for half in gl.static_range(plan.sent):
        memory = ring.b.index(at.slot * plan.sent + half)
        load_tile(half_of(b, half, plan.across[1]), column, k, bar, memory, plan.b, pred)


@jit
def half_of(source, part: gl.constexpr, operands: gl.constexpr):
    """The operand of a block of a slot, the number `part` of those of one or two `operands`."""
    return source[part % operands] if operands > 1 else source


@jit
def first_of(part: gl.constexpr, plan: gl.constexpr):
    """The row of a tile of the output at which block `part` of a begins."""
    return part // plan.across[0] * (plan.block_m // plan.parts)


@jit
def free_of(plan: gl.constexpr):
    """The barriers that complete when a slot is free: in a cluster in all of its CTAs, as a multicast writes to all of them."""
    return barriers_of(plan.stages, plan.consumers * plan.cluster)


@jit
def release(free, at, plan: gl.constexpr):
    """A consumer has read a slot. In a cluster it tells the producers of all CTAs: one that had to ask the others would wait
    for an answer in every iteration, which takes longer than the MMAs of a small tile."""
    mbarrier.arrive(free.index(at.slot), count=1, everywhere=plan.cluster > 1)


@jit
def load_for_cluster(ring, at, a, b, row, column, k):
    """Issue the TMA loads of a cluster: each CTA loads its own rows of a, and multicasts its part of the block of b to all.

    The slot must be free in all CTAs. Their `ready` barriers may get bytes before they expect them, but not in the phase before
    the one in which they will: that is complete where a slot has been read.
    """
    plan: gl.constexpr = ring.plan
    bar = ring.ready.index(at.slot)
    mbarrier.expect(bar, plan.expected)
    for part in gl.static_range(plan.parts):
        memory = ring.a.index(at.slot * plan.parts + part)
        load_tile(a, row + part * (plan.block_m // plan.parts), k, bar, memory, plan.a)
    for part in gl.static_range(plan.sent):
        sender: gl.constexpr = part % plan.cluster
        memory, source = ring.b.index(at.slot * plan.sent + part), half_of(b, part // plan.cluster, plan.across[1])
        load_tile(source, column + sender * (plan.block_n // plan.sent), k, bar, memory, plan.b, sender=sender)


@jit
def issue_mma(left, right, acc, use_acc, plan: gl.constexpr):
    """Issue acc + left @ right, or left @ right unless `use_acc`. With promotion the MMAs are complete afterwards, since
    threads add the tensor core's accumulator to float32 registers."""
    if plan.promoted:
        return warpgroup_mma(left, right, acc, use_acc=use_acc, max_num_imprecise_acc=plan.promoted)
    return warpgroup_mma(left, right, acc, use_acc=use_acc, is_async=True)


@jit
def blocks_of(K, part, plan: gl.constexpr):
    """First block along K of a split, or of this CTA's share, and the block after its last one; none is empty."""
    blocks = gl.cdiv(K, plan.block_k)
    if plan.shares > 1:
        rank = gl.block_rank_in_cluster()
        return blocks * rank // plan.shares, blocks * (rank + 1) // plan.shares
    if plan.batched:
        part = part % plan.splits
    each = gl.cdiv(blocks, plan.splits)
    first = part * each
    return first, min(first + each, blocks)
