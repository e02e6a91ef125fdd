"""Linear maps over F2 of a thread's index and its block's cluster rank, emitted as shifts, masks and additions or XORs.

(4, 8, 16, 0, 0, 1)    -->    (thread & 7) * 4 + (thread >> 5 & 1)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.ir.core import Value
from weft.ir.types import int32
from weft.ops import arith, program
from weft.passes.lower.placement import Table, bit_terms, splits, union

if TYPE_CHECKING:
    from weft.passes.lower.state import Lowering


def mapped(lo: Lowering, threads: Table, thread_bits: int, blocks: Table) -> Value:
    """The XOR of `threads[i]` over the set bits i of the thread's index, which has `thread_bits` bits, and of `blocks[i]` over
    those of the block's cluster rank. An int32; parts with disjoint bits are added."""
    within = _mapped_bits(lo, threads, lo.thread, thread_bits)
    if not any(blocks):
        return within
    across = _mapped_bits(lo, blocks, lo.rank, lo.block_bits)
    return lo.add(within, across) if splits(union(threads), union(blocks)) else lo.emit(arith.xor, within, across)


def mapped_warp(lo: Lowering, warps: Table) -> Value:
    """The sum of `warps[i]` over the set bits i of the warp's index, as a warp-uniform int32 that is computed at the entry. The
    images must be disjoint."""
    assert splits(*warps)
    with lo.at_entry():
        return _mapped_bits(lo, warps, lambda: lo.emit(program.warp_id, name="warp"), lo.num_warps.bit_length() - 1)


def _mapped_bits(lo: Lowering, column: Table, number: Callable[[], Value], bits: int) -> Value:
    terms = bit_terms(column)
    disjoint = splits(*[image for _, _, _, image in terms])
    total: Value | None = None
    for first, count, factor, _ in terms:
        part = number()
        if first:
            part = lo.emit(arith.shr, part, lo.constant(first, int32))
        if first + count < bits:
            part = lo.emit(arith.and_, part, lo.constant((1 << count) - 1, int32))
        part = lo.scaled(part, factor)
        total = part if total is None else lo.emit(arith.add if disjoint else arith.xor, total, part)
    return lo.constant(0, int32) if total is None else total
