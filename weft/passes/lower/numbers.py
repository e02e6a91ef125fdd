"""Linear maps of a thread's number and of its block's, as arithmetic."""

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
    """The exclusive or of `threads[i]` over the set bits i of the thread's number in its block, which has so many bits, and of
    `blocks[i]` over those of the block's number in its cluster. An int32."""
    within = _mapped_bits(lo, threads, lo.thread, thread_bits)
    if not any(blocks):
        return within
    across = _mapped_bits(lo, blocks, lo.rank, lo.block_bits)
    return lo.add(within, across) if splits(union(threads), union(blocks)) else lo.emit(arith.xor, within, across)


def mapped_warp(lo: Lowering, warps: Table) -> Value:
    """The sum of `warps[i]` over the set bits i of the warp's number, none of which has a bit of another. An int32 of the
    warp's, computed at the entry."""
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
