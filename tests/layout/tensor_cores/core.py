"""A model of tensor core instructions: how they find operands in memory and in registers, written from the PTX ISA.

It knows nothing of layouts. Memory is an array of elements from an address on that satisfies every alignment.
"""

from __future__ import annotations

import numpy as np

SWIZZLE = {0: 0, 1: 128, 2: 64, 3: 32}


def descriptor_addresses(descriptor, transposed, bits, outer, k):
    """Byte address of every element [outer, k] of an operand, as a 64-bit matrix descriptor tells it."""
    start, leading, stride = (descriptor >> bit & 0x3FFF for bit in (0, 16, 32))
    return addresses(start, leading, stride, SWIZZLE[descriptor >> 62] // 16, transposed, bits, outer, k)


def addresses(start, leading, stride, width, transposed, bits, outer, k):
    """Byte address of every element [outer, k] of an operand, given what a matrix descriptor holds.

    Sixteen bytes are a unit. Strides of the canonical layouts, in units, W being the swizzle's `width`:
    along k     swizzled (8, n) x 2: (W, stride) x 1, unswizzled (8, n) x 2: (1, stride) x leading
    along outer swizzled (W, n) x (8, k): (1, leading) x (W, stride), unswizzled n x (8, k): stride x (1, leading)
    """
    per_unit = 128 // bits
    o, j = np.meshgrid(np.arange(outer), np.arange(k), indexing="ij")
    if not transposed:
        unit, inside = j // per_unit, j % per_unit
        line = o % 8 * max(width, 1) + o // 8 * stride
        units = line + (unit if width else unit * leading)
    else:
        unit, inside = o // per_unit, o % per_unit
        line = j % 8 * max(width, 1) + j // 8 * (stride if width else leading)
        units = line + (unit % width + unit // width * leading if width else unit * stride)
    byte = (start + units) * 16 + inside * bits // 8
    return byte ^ (byte >> 7 & max(width, 1) - 1) << 4


def wgmma(plan, memory, accumulators, warps, bits, left_registers=None):
    """Run a plan on `accumulators` [warp, lane, register], in place.

    `memory` holds a's and b's elements, `left_registers` [warp, lane, register] those of a that lies in registers.
    """
    for group in range(0, warps, 4):
        started = set()
        for register, at_a, at_b, first in plan.steps:
            assert first == (register not in started)
            started.add(register)
            b = _from_memory(memory["b"], plan.right, group, at_b, bits, plan.n, plan.k).T
            if plan.left is None:
                a = np.concatenate([_left_fragment(left_registers[group + w], at_a, plan.k, bits) for w in range(4)])
            else:
                a = _from_memory(memory["a"], plan.left, group, at_a, bits, 64, plan.k)
            product = a @ b
            for w in range(4):
                _add_fragment(accumulators[group + w], register, product[16 * w : 16 * w + 16])


def mma_sync(plan, accumulators, left_registers, right_registers, warps, bits):
    """Run a plan of `mma.sync` on `accumulators` [warp, lane, register], in place."""
    for warp in range(warps):
        for register, at_a, at_b in plan.steps:
            a = _left_fragment(left_registers[warp], at_a, plan.k, bits)
            b = _right_fragment(right_registers[warp], at_b, plan.k, bits)
            _add_fragment(accumulators[warp], register, a @ b)


def _from_memory(memory, operand, warp, offset, bits, outer, k):
    """One instruction's operand, [outer, k]."""
    begin = 0
    for bit, base in enumerate(operand.warps):
        begin ^= (warp >> bit & 1) * base
    assert (begin + offset) % 16 == 0
    descriptor = operand.descriptor_bits | (begin + offset) >> 4
    return memory[descriptor_addresses(descriptor, operand.transposed, bits, outer, k) * 8 // bits]


def _add_fragment(registers, first, product):
    """Add a product of 16 rows to a warp's accumulator: register 4 j + 2 h + c is row lane / 4 + 8 h, column 8 j + ..."""
    lane = np.arange(32)
    for r in range(product.shape[1] // 2):
        row, column = lane // 4 + r % 4 // 2 * 8, r // 4 * 8 + lane % 4 * 2 + r % 2
        registers[:, first + r] += product[row, column]


def _left_fragment(registers, first, k, bits):
    """A warp's 16 x k operand: a 32-bit register is row lane / 4 (+ 8), the lane's words being k / 2 apart."""
    out = np.zeros((16, k), registers.dtype)
    lane, per_word = np.arange(32), 32 // bits
    for r in range(4 * per_word):
        word, inside = divmod(r, per_word)
        out[lane // 4 + word % 2 * 8, word // 2 * k // 2 + lane % 4 * per_word + inside] = registers[:, first + r]
    return out


def _right_fragment(registers, first, k, bits):
    """A warp's k x 8 operand."""
    out = np.zeros((k, 8), registers.dtype)
    lane, per_word = np.arange(32), 32 // bits
    for r in range(2 * per_word):
        word, inside = divmod(r, per_word)
        out[word * k // 2 + lane % 4 * per_word + inside, lane // 4] = registers[:, first + r]
    return out
