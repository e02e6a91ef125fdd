"""How `wgmma` reads an operand in shared memory: canonical layouts, and the fields of a matrix descriptor.

(PTX ISA, "Shared Memory Matrix Layout" and "Matrix Descriptor Format" of the asynchronous warpgroup instructions.)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix in shared memory as matrix descriptors see it; all sizes in bytes.

    `swizzle` is 0, 32, 64 or 128. `transposed`: contiguous along its outer dimension (m or n), not along k. `leading` and
    `stride` are the descriptor's leading and stride byte offsets. Warp w of a partition begins at the exclusive or of
    `warps[i]` over the set bits i of w, of which the lowest two are 0: the warps of a warpgroup begin together.
    """

    swizzle: int
    transposed: bool
    leading: int
    stride: int
    warps: tuple[int, ...]
