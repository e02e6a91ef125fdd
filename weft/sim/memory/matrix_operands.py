"""The addresses in shared memory that `wgmma` reads for a matrix descriptor.

An instruction's operand is `outer` rows (of a) or columns (of b) by 256 bits along k. Addresses are computed for the
unswizzled canonical layout; the swizzle then XORs the index of a 16-byte chunk within the swizzle width with address bits 7 and
up (PTX ISA, wgmma: "Shared Memory Matrix Layout", "Major-ness supported by Strides").
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from weft.layout.tensor_cores.shared_operands import Operand
from weft.sim.machine.data import Array, arange
from weft.sim.memory.places import Place, place_at
from weft.sim.memory.verdicts import MANY

CHUNK = 16
"""Size in bytes of the chunks that a swizzle permutes."""


def canonical(operand: Operand, outer: int, k: int, itemsize: int) -> Array:
    """Unswizzled byte offsets of an instruction's operand from its start, as (outer, k)."""
    span = operand.swizzle or CHUNK
    row, column = arange(outer)[:, None], arange(k)[None, :]
    contiguous, line = (row, column) if operand.transposed else (column, row)
    contiguous = contiguous * itemsize
    # The leading-dimension byte offset steps along k without a swizzle, and along the contiguous dimension with one.
    across, along = (
        (operand.stride, operand.leading)
        if operand.transposed and not operand.swizzle
        else (operand.leading, operand.stride)
    )
    return contiguous % span + contiguous // span * across + line % 8 * span + line // 8 * along


def swizzled(address: Array, swizzle: int) -> Array:
    """The swizzled address of an address, for a swizzle width in bytes."""
    return address ^ (address >> 7 & max(swizzle // CHUNK, 1) - 1) << 4


@lru_cache(maxsize=1024)
def operand_place(
    operand: Operand, outer: int, k: int, itemsize: int, offsets: tuple[tuple[int, ...], ...], warps: int, base: int,
    granule: int, padded: bool = False,
) -> Place:  # fmt: skip
    """The place of the operands of all instructions, with elements as (chains, warpgroups, outer, steps * k).

    `offsets`: for each chain, the byte offsets of its steps from `base`, the byte at which the tile starts. `warps`: the warps
    of the partition. For a `padded` operand (fp4), only the first half of each `CHUNK` along k is read."""
    groups = arange(0, warps, 4)
    own = np.zeros_like(groups)
    for bit, basis in enumerate(operand.warps):
        own ^= np.where(groups >> bit & 1, basis, 0)
    starts = base + (np.array(offsets)[:, None, :] ^ own[None, :, None])
    inside = canonical(operand, outer, k, itemsize)
    if padded:
        inside = inside[:, arange(k) * itemsize % CHUNK < CHUNK // 2]
    address = swizzled(starts[:, :, None, :, None] + inside[None, None, :, None, :], operand.swizzle)
    elements = (address.reshape(len(offsets), len(groups), outer, -1) - base) // itemsize
    return place_at(base, elements, itemsize, granule, MANY)
