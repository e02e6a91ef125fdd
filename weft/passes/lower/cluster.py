"""Lowering of exchange between the blocks of a cluster, through scratch memory of each block.

%y = cluster.convert %x    -->    shared.store_regs %scratch, %x                  each block its part
                                  cluster.arrive; cluster.wait
                                  %y = cluster.load_regs %scratch, %base, %peer   from any block
                                  cluster.arrive; cluster.wait                    before the scratch memory is reused

Outside of an exchange no block accesses another's scratch memory, so `insert_sync` orders accesses to it as usual.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.core import Value
from weft.layout.convert.across import ClusterRoundTrip
from weft.layout.shared.vectors import VectorAccess
from weft.ops import cluster, shared
from weft.passes.lower.blocks import acting, both
from weft.passes.lower.exchange import allocate
from weft.passes.lower.handles import view
from weft.passes.lower.state import Lowering


def _meet(lo: Lowering, bar: Value | None, reason: str) -> None:
    """A barrier of the threads of all blocks of the cluster, or with `bar` of those of the partition in all blocks."""
    if bar is not None:
        lo.emit(cluster.barrier, view(lo, bar), reason=reason)
        return
    lo.emit(cluster.arrive, reason=reason)
    lo.emit(cluster.wait, reason=reason)


def round_trip(lo: Lowering, plan: ClusterRoundTrip, value: Value, bar: Value | None) -> Value:
    """Store the block's part to scratch memory, and load from all blocks. `bar` as in `cluster.convert`."""
    memory = allocate(lo, value, plan.elements)
    lo.emit(
        shared.store_regs, memory, lo.of_thread(plan.store.lane_bases, plan.store.warp_bases), value,
        lo.has_clear(plan.store.lane_mask, plan.store.warp_mask),
        offsets=plan.store.offsets, registers=plan.store.registers, vec=plan.store.vec,
    )  # fmt: skip
    loaded = sorted(r for group in plan.load.registers for r in group)
    slot = {register: i for i, register in enumerate(loaded)}
    registers = tuple(tuple([slot[r] for r in group]) for group in plan.load.registers)
    low = (1 << plan.offset_bits) - 1
    offsets = tuple([offset & low for offset in plan.load.offsets])
    base = spread(lo, plan.load, plan.block_bits, lambda place: place & low)
    if plan.crosses:
        _meet(lo, bar, "before blocks read each other's part of a tile")
        peer = spread(lo, plan.load, plan.block_bits, lambda place: place >> plan.offset_bits)
        peers = tuple([offset >> plan.offset_bits for offset in plan.load.offsets])
        value = lo.emit(
            cluster.load_regs, memory, base, peer,
            offsets=offsets, peers=peers, registers=registers, vec=plan.load.vec,
        )  # fmt: skip
        _meet(lo, bar, "after blocks have read each other's part of a tile")
    else:
        value = lo.emit(shared.load_regs, memory, base, offsets=offsets, registers=registers, vec=plan.load.vec)
    return lo.gather(value, tuple([slot[r] for r in plan.result]))


def spread(lo: Lowering, access: VectorAccess, block_bits: int, part: Callable[[int], int]) -> Value:
    """The linear map of thread and block that is a part of the access's places, whose last warp bits are those of the rank."""
    lanes, warps = (tuple(map(part, bases)) for bases in (access.lane_bases, access.warp_bases))
    own = len(warps) - block_bits
    return lo.of_thread(lanes, warps[:own], warps[own:])


def active(lo: Lowering, access: VectorAccess, block_bits: int) -> Value | None:
    """The predicate of threads that take part in an access whose last warp bits are those of the rank; None for all."""
    own = len(access.warp_bases) - block_bits
    within = lo.has_clear(access.lane_mask, access.warp_mask & (1 << own) - 1)
    blocks = access.warp_mask >> own
    return both(lo, within, acting(lo, blocks) if blocks else None)
