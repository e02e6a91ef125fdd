"""Give the compiler's own shared memory its byte offsets, between and beside the author's, which have theirs.

    %s = scratch.alloc {count=1024}    -->    %s = scratch.alloc {count=1024, offset=0}

Allocations that are not alive at the same time share bytes (`weft.analysis.liveness`); `insert_sync` keeps their accesses
apart.
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
    """Set every allocation's offset, and "shared_bytes" of the function, of a cluster so many that tensor memory is enough for
    all blocks that a multiprocessor holds.

    Raises OutOfResources (shared-memory), a bill, when it does not fit.
    """
    kept = func.attrs.kept_bytes
    lives = lifetimes(func)
    rooms = {op.operand("room") for op in walk(func.body) if op.kind is tensor_memory.reserve}
    for alloc, life in lives.items():
        first = alloc.attrs["offset"]
        # What the author keeps alive is not to be seen in lowered operations any more; and all threads, those of partitions
        # too, read the room of tensor memory's address when they have met, so nobody may write there.
        by_author = any(first < end and begin < first + bytes_of(alloc) for begin, end in kept if first >= 0)
        if by_author or alloc.result in rooms:
            lives[alloc] = replace(life, first=0, last=maxsize)
    placed = with_offsets(func, place(lives), target)
    least = _least_bytes(placed, target)
    return placed if placed.attrs.shared_bytes >= least else placed.with_attrs(shared_bytes=least)


def _least_bytes(func: Func, target: Target) -> int:
    """Bytes that keep blocks of clusters from a multiprocessor whose tensor memory is taken.

    They would wait for columns while blocks of their own cluster hold those that others wait for."""
    columns = func.attrs.tensor_columns
    if not columns or func.attrs.num_ctas == 1:
        return 0
    too_many = target.tensor_memory_columns // columns + 1
    room, step = target.shared_bytes_per_sm // too_many - target.reserved_shared_bytes, target.shared_granularity
    return min(room // step * step + step, target.shared_bytes)
