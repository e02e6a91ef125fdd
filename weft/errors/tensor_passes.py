"""Mistakes with tensor memory that passes find: what does not fit, and warps that do not reach it."""

from __future__ import annotations

from weft.errors.base import CompilationError, row
from weft.errors.launch import OutOfResources

COLUMNS = row(
    "tensor-memory",
    OutOfResources,
    "the kernel needs {total} columns of tensor memory, the target has {limit} for a block: {bill}",
    "use smaller tiles or fewer buffers, or keep in one buffer what is not needed at the same time, as parts of it (.slice) or "
    "as another type (.reinterpret)",
)
WARPS = row(
    "tensor-memory-warps",
    CompilationError,
    "{what} is done by {who}, which has {warps} warps: warp w reaches lanes 32 * (w % 4) to 32 * (w % 4) + 31 of tensor memory "
    "only, so four are needed to reach all",
    "give it 4 warps, or 8: {where}",
)
