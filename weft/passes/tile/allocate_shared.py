"""Assign byte offsets to the author's shared memory.

    %a = shared.alloc {shape=(64,), ...}    -->    %a = shared.alloc {shape=(64,), offset=0, ...}

Allocations whose live ranges do not overlap may share bytes (`weft.analysis.liveness`); `insert_sync` orders their accesses.
"""

from __future__ import annotations

from typing import Any

from weft.analysis.liveness import Placed, bill, lifetimes, place, total_bytes
from weft.errors import compiler as errors
from weft.errors import fail
from weft.ir.core import Func
from weft.ir.rebuild import with_op_attrs
from weft.targets import Target


def allocate_shared(func: Func, target: Target) -> Func:
    """Set the offset of every `shared.alloc`, and the function's "shared_bytes" if it has any.

    "kept_bytes" are the ranges that the author keeps alive, if any. Raises OutOfResources (shared-memory), with the list of
    allocations, if they do not fit.
    """
    placed = place(lifetimes(func))
    if not placed:
        return func
    kept = tuple((p.offset, p.end) for p in placed if p.lifetime.kept)
    return with_offsets(func, placed, target, **({"kept_bytes": kept} if kept else {}))


def with_offsets(func: Func, placed: list[Placed], target: Target, **attrs: Any) -> Func:
    """The function with the offsets of its allocations. Raises OutOfResources (shared-memory)."""
    total = max(total_bytes(placed), func.attrs.shared_bytes)
    if not placed:
        return func.with_attrs(shared_bytes=total, **attrs)
    if total > target.shared_bytes:
        largest = max(placed, key=lambda p: p.bytes)
        raise fail(
            errors.SHARED_MEMORY, loc=largest.alloc.loc, total=total, limit=target.shared_bytes, bill=bill(placed)
        )
    offsets = {p.alloc: {**p.alloc.attrs, "offset": p.offset} for p in placed}
    return with_op_attrs(func, offsets, shared_bytes=total, **attrs)
