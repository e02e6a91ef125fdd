"""Scratch shared memory of the compiler in lowered IR, for layout conversions, reductions and others (accesses: `shared.*`)."""

from __future__ import annotations

from weft.ir.define import op
from weft.ir.types import DType, SharedArrayType, Type
from weft.layout.shared.sizes import VECTOR_BYTES
from weft.ops.check import require


@op("scratch.alloc", stage="lowered")
def alloc(dtype: DType, count: int, tag: int, offset: int = -1, align: int = VECTOR_BYTES) -> Type:
    """Allocate `count` elements. `tag` is unique, so that value numbering never merges allocations. `allocate_scratch` sets
    `offset` (in bytes, a multiple of `align`) by liveness, and `insert_sync` orders accesses to the same bytes."""
    require(count > 0, "an allocation has elements")
    return SharedArrayType(dtype, count)
