"""Assign byte offsets to the compiler's scratch shared memory. The author's allocations already have theirs.

    %s = shared.scratch {count=1024}    -->    %s = shared.scratch {count=1024, offset=0}

Allocations whose live ranges do not overlap may share bytes (`weft.analysis.liveness`); `insert_sync` orders their accesses.
"""

from __future__ import annotations

from dataclasses import replace
from sys import maxsize

from weft.analysis.handles import bytes_of
from weft.analysis.liveness import lifetimes, place
from weft.ir.core import Func, walk
from weft.ops import tensor_memory
from weft.passes.tile.allocate_shared import with_offsets
from weft.targets import Target


def allocate_scratch(func: Func, target: Target) -> Func:
    """Set the offset of every allocation and the function's "shared_bytes". For clusters with tensor memory, "shared_bytes" is
    large enough that an SM never holds more blocks than it has tensor memory columns for.

    Raises OutOfResources (shared-memory), with the list of allocations, if they do not fit.
    """
    kept = func.attrs.kept_bytes
    lives = lifetimes(func)
    rooms = {op.operand("room") for op in walk(func.body) if op.kind is tensor_memory.reserve}
    for alloc, life in lives.items():
        first = alloc.attrs["offset"]
        # Lowered IR no longer shows which memory the author keeps alive. And all threads, also those of worker partitions,
        # read the tensor memory address from shared memory after a barrier, so these bytes must not be reused.
        by_author = any(first < end and begin < first + bytes_of(alloc) for begin, end in kept if first >= 0)
        if by_author or alloc.result in rooms:
            lives[alloc] = replace(life, first=0, last=maxsize)
    placed = with_offsets(func, place(lives), target)
    least = _least_bytes(placed, target)
    return placed if placed.attrs.shared_bytes >= least else placed.with_attrs(shared_bytes=least)


def _least_bytes(func: Func, target: Target) -> int:
    """The shared memory size at which an SM cannot hold more blocks than its tensor memory columns suffice for.

    Otherwise `tcgen05.alloc` of one block of a cluster could wait for columns while other blocks of the cluster hold columns
    that blocks of another cluster wait for: a deadlock."""
    columns = func.attrs.tensor_columns
    if not columns or func.attrs.num_ctas == 1:
        return 0
    too_many = target.tensor_memory_columns // columns + 1
    room, step = target.shared_bytes_per_sm // too_many - target.reserved_shared_bytes, target.shared_granularity
    return min(room // step * step + step, target.shared_bytes)
