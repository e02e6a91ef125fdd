"""Give the compiler's own shared memory its byte offsets, between and beside the author's, which have theirs.

    %s = scratch.alloc {count=1024}    -->    %s = scratch.alloc {count=1024, offset=0}

Allocations that are not alive at the same time share bytes (`weft.passes.liveness`); `insert_sync` keeps their accesses apart.
"""

from __future__ import annotations

from dataclasses import replace
from sys import maxsize

from weft.ir.core import Func, walk
from weft.ops import tensor_memory
from weft.passes.allocate_shared import with_offsets
from weft.passes.handles import bytes_of
from weft.passes.liveness import lifetimes, place
from weft.targets import Target


def allocate_scratch(func: Func, target: Target) -> Func:
    """Set every allocation's offset, and "shared_bytes" of the function.

    Raises OutOfResources (shared-memory), a bill, when it does not fit.
    """
    kept: tuple[tuple[int, int], ...] = func.attrs.get("kept_bytes", ())
    lives = lifetimes(func)
    rooms = {op.operand("room") for op in walk(func.body) if op.kind is tensor_memory.reserve}
    for alloc, life in lives.items():
        first = alloc.attrs["offset"]
        # What the author keeps alive is not to be seen in lowered operations any more; and all threads, those of partitions
        # too, read the room of tensor memory's address when they have met, so nobody may write there.
        by_author = any(first < end and begin < first + bytes_of(alloc) for begin, end in kept if first >= 0)
        if by_author or alloc.result in rooms:
            lives[alloc] = replace(life, first=0, last=maxsize)
    return with_offsets(func, place(lives), target)
