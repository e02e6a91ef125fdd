"""Lowered stage: the shared memory that the compiler takes for conversions, reductions and the like (accesses: `shared.*`)."""

from __future__ import annotations

from weft.ir.define import op
from weft.ir.types import DType, SharedArrayType, Type
from weft.layout.shared.sizes import VECTOR_BYTES
from weft.ops.check import require


@op("scratch.alloc", stage="lowered")
def alloc(dtype: DType, count: int, tag: int, offset: int = -1, align: int = VECTOR_BYTES) -> Type:
    """`count` elements. `tag` keeps allocations apart, so that they are never merged; `offset` (in bytes, a multiple of
    `align`) is set by `allocate_scratch` by liveness, and `insert_sync` then places barriers on the physical ranges."""
    require(count > 0, "an allocation has elements")
    return SharedArrayType(dtype, count)
