"""Where `wgmma` finds its operands in shared memory: what the hardware makes of a matrix descriptor.

An instruction's operand is `outer` rows (of a) or columns (of b) by 256 bits along k. Its address is that of an unswizzled
canonical layout; of the chunks of 16 bytes in a swizzle's width, bits 7 and up of the address then choose one by exclusive or.
(PTX ISA, "Strides" and "Shared Memory Matrix Layout" of the asynchronous warpgroup instructions.)
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from weft.layout.tensor_cores.shared_operands import Operand
from weft.sim.machine.data import Array, arange
from weft.sim.memory.places import Place, place_at
from weft.sim.memory.verdicts import MANY

CHUNK = 16
"""Bytes that a swizzle moves as a whole."""


def canonical(operand: Operand, outer: int, k: int, itemsize: int) -> Array:
    """Byte offsets of an instruction's operand from its start, unswizzled, as (outer, k)."""
    span = operand.swizzle or CHUNK
    row, column = arange(outer)[:, None], arange(k)[None, :]
    contiguous, line = (row, column) if operand.transposed else (column, row)
    contiguous = contiguous * itemsize
    # The leading offset goes along k where nothing is swizzled, else along the contiguous dimension.
    across, along = (
        (operand.stride, operand.leading)
        if operand.transposed and not operand.swizzle
        else (operand.leading, operand.stride)
    )
    return contiguous % span + contiguous // span * across + line % 8 * span + line // 8 * along


def swizzled(address: Array, swizzle: int) -> Array:
    """The address that a swizzle of some bytes puts in the place of another."""
    return address ^ (address >> 7 & max(swizzle // CHUNK, 1) - 1) << 4


@lru_cache(maxsize=1024)
def operand_place(
    operand: Operand, outer: int, k: int, itemsize: int, offsets: tuple[tuple[int, ...], ...], warps: int, base: int,
    granule: int, padded: bool = False,
) -> Place:  # fmt: skip
    """The place of the operands that instructions read, elements as (chains, warpgroups, outer, steps * k).

    `offsets` are the bytes from `base`, the byte of shared memory where the tile starts, of each chain's steps; `warps` those
    of the partition. Of a `padded` operand the first half of each `CHUNK` along k is read."""
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
