"""Blocks of a and b on their way through shared memory: the ring of buffers, and what fills it by TMA.

`ready` of a slot says that its blocks have arrived. Both operands are seen as [rows, K]: rows of a, columns of b.
"""

from __future__ import annotations

from typing import TypeAlias

from weft import language as gl
from weft.kernel import jit
from weft.language.nvidia.hopper import mbarrier, tma, warpgroup_mma

Operand: TypeAlias = "gl.tensor | tma.tensor_descriptor"
"""What holds an operand: a pointer, or a descriptor."""
Scale: TypeAlias = "gl.tensor | float | None"
"""A factor of the product: a number, a pointer to one or several, or none."""


@gl.aggregate
class Place:
    """A position in the ring: the slot, and the parity of the round."""

    slot: gl.tensor
    phase: gl.tensor
    stages: gl.constexpr

    @jit
    def next(self):
        """The position after this one."""
        last = self.slot == self.stages - 1
        return Place(gl.where(last, 0, self.slot + 1), self.phase ^ last.to(gl.int32), self.stages)

    @jit
    def skip(self, count):
        """The position `count` positions on."""
        slot = self.slot + count
        rounds = slot // self.stages
        return Place(slot - rounds * self.stages, self.phase ^ (rounds & 1), self.stages)


@gl.aggregate
class Ring:
    """Buffers of both operands, `plan.stages` slots of each, as they lie in memory, and the barriers of slots."""

    a: gl.shared_memory_descriptor
    b: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    plan: gl.constexpr

    @staticmethod
    @jit
    def make(plan: gl.constexpr, pairs: gl.constexpr = False):
        """A ring whose slots are empty; blocks of a pair share the barriers of theirs."""
        a = gl.allocate_shared_memory(plan.a.dtype, [plan.stages * plan.parts, *plan.a.block], plan.a.layout)
        b = gl.allocate_shared_memory(plan.b.dtype, [plan.stages * plan.sent, *plan.b.block], plan.b.layout)
        return Ring(a, b, barriers_of(plan.stages, plan.arrivals, pairs), plan)

    @jit
    def start(self):
        """The first position."""
        return Place(0, 0, self.plan.stages)

    @jit
    def left(self, slot, part: gl.constexpr = 0):
        """A block of a in a slot, [rows, K]."""
        memory = self.a.index(slot * self.plan.parts + part)
        return memory if self.plan.a.along_k else memory.permute([1, 0])

    @jit
    def right(self, slot):
        """The block of b in a slot, [K, columns]."""
        plan: gl.constexpr = self.plan
        memory = self.b.index(slot * plan.sent)
        if plan.sent > 1:
            # The parts that were sent follow one another, as those of one block do.
            memory = memory._reinterpret(plan.b.dtype, plan.b_block, plan.b.layout)  # noqa: SLF001 so the language calls it
        return memory.permute([1, 0]) if plan.b.along_k else memory


@jit
def barriers_of(stages: gl.constexpr, arrivals: gl.constexpr, pairs: gl.constexpr = False):
    """A barrier for each slot, whose phases take so many arrivals, from each block where those of a pair share them."""
    bars = mbarrier.allocate_mbarrier(batch=stages, two_ctas=pairs)
    for slot in gl.static_range(stages):
        mbarrier.init(bars.index(slot), count=arrivals)
    return bars


@jit
def request(desc, row, k, bar, memory, side: gl.constexpr, pred=True, sender: gl.constexpr = None):
    """Have TMA bring the block of an operand at a row and a place along K; a `sender` of a cluster sends it to all."""
    send: gl.constexpr = sender is not None
    first: gl.constexpr = sender if send else 0
    if side.along_k:
        tma.async_load(desc, [row, k], bar, memory, pred=pred, multicast=send, sender=first)
    else:
        tma.async_load(desc, [k, row], bar, memory, pred=pred, multicast=send, sender=first)


@jit
def request_both(ring, at, a, b, row, column, k, pred=True):
    """Have TMA bring the blocks of both operands into a slot, which must be free."""
    plan: gl.constexpr = ring.plan
    bar = ring.ready.index(at.slot)
    mbarrier.expect(bar, plan.expected, pred=pred)
    request(a, row, k, bar, ring.a.index(at.slot), plan.a, pred)
    request(b, column, k, bar, ring.b.index(at.slot), plan.b, pred)


@jit
def request_for_cluster(ring, both_free, at, a, b, row, column, k):
    """Have TMA bring each block of a cluster its rows of a, and all of them the same block of b, of which each sends a part.

    The slot must be free in the block itself. Before it sends, a block waits until it is in the others too, and until they
    expect the bytes.
    """
    plan: gl.constexpr = ring.plan
    bar = ring.ready.index(at.slot)
    mbarrier.expect(bar, plan.expected)
    for part in gl.static_range(plan.parts):
        memory = ring.a.index(at.slot * plan.parts + part)
        request(a, row + part * (plan.block_m // plan.parts), k, bar, memory, plan.a)
    mbarrier.arrive(both_free.index(at.slot), count=1, everywhere=True)
    mbarrier.wait(both_free.index(at.slot), at.phase)
    for sender in gl.static_range(plan.cluster):
        memory = ring.b.index(at.slot * plan.cluster + sender)
        request(b, column + sender * (plan.block_n // plan.cluster), k, bar, memory, plan.b, sender=sender)


@jit
def start_product(left, right, acc, use_acc, plan: gl.constexpr):
    """Start acc + left @ right, or left @ right unless `use_acc`. Promoted sums are complete afterwards: threads add them."""
    if plan.promoted:
        return warpgroup_mma(left, right, acc, use_acc=use_acc, max_num_imprecise_acc=plan.promoted)
    return warpgroup_mma(left, right, acc, use_acc=use_acc, is_async=True)


@jit
def blocks_of(K, part, plan: gl.constexpr):
    """First block along K of a part of the sum, and the block after its last one; no part is empty."""
    blocks = gl.cdiv(K, plan.block_k)
    each = gl.cdiv(blocks, plan.splits)
    first = part * each
    return first, min(first + each, blocks)
