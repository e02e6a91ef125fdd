"""Numerics of block-scaled MMA: narrow floats with one scale factor for each run of elements along k.

Elements are e4m3 and e5m2, one byte each, and e2m1, two per byte with the first in the low nibble. Scale factors are ue8m0
(2 ** (byte - 127), 255 is NaN) and ue4m3 (seven bits; the eighth is ignored). These are the formats of the OCP Microscaling
specification and of PTX ISA, "Alternate Floating-Point Data Formats".

Each scaled element, and each product of two, is exact in float64. One instruction's products and the accumulator are added in
float64 and rounded once to fp32, to nearest even. This is not measured, because no Blackwell GPU was available: the hardware
may truncate the sum as Hopper does (`weft.sim.numbers.tensor_core`), and then differs in the last bits.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from weft.layout.tensor_cores.tcgen05_kinds import Format
from weft.sim.machine.data import Array

_BYTES = np.arange(256, dtype=np.uint8)
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_ELEMENTS: dict[str, Array] = {
    "e4m3": _BYTES.view(ml_dtypes.float8_e4m3fn).astype(np.float32),
    "e5m2": _BYTES.view(ml_dtypes.float8_e5m2).astype(np.float32),
}
_E8M0: Array = _BYTES.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
_UE4M3 = _ELEMENTS["e4m3"][_BYTES & np.uint8(127)]


def elements(stored: Array, kind: Format, axis: int = -1) -> Array:
    """Decode bytes to float32, which represents all values. An e2m1 byte decodes to two elements, adjacent along `axis`."""
    codes: Array = np.ascontiguousarray(stored).view(np.uint8)
    if kind != "e2m1":
        return _ELEMENTS[kind][codes]
    axis %= codes.ndim
    pairs = np.stack((_E2M1[codes & np.uint8(15)], _E2M1[codes >> np.uint8(4)]), axis + 1)
    return pairs.reshape(*codes.shape[:axis], 2 * codes.shape[axis], *codes.shape[axis + 1 :])


def packed(padded: Array) -> Array:
    """Bytes of two e2m1, from elements along the last axis that lie in bits 2 to 5 of a byte each (`fp4_padded` in tensor
    memory)."""
    codes: Array = padded.view(np.uint8) >> np.uint8(2) & np.uint8(15)
    return codes[..., ::2] | codes[..., 1::2] << np.uint8(4)


def scales(stored: Array) -> Array:
    """Decode scale factors to float32: uint8 and float8_e8m0fnu as powers of two, float8_e4m3fn as its magnitude."""
    codes: Array = np.ascontiguousarray(stored).view(np.uint8)
    return (_UE4M3 if stored.dtype == ml_dtypes.float8_e4m3fn else _E8M0)[codes]


def scaled_product(a: Array, b: Array, acc: Array | None, a_scale: Array, b_scale: Array, step: int) -> Array:
    """`acc + a @ b` (`a @ b` without `acc`) in fp32, with each run of elements multiplied by its scale factor; all operands
    are decoded values.

    `a` [..., m, k], `b` [..., k, n], `acc` [..., m, n], `a_scale` [..., m, k / run], `b_scale` [..., n, k / run]. `step` is how
    many elements along k one instruction takes; the accumulator is rounded to fp32 behind each."""
    left, right = _scaled(a, a_scale), _scaled(np.swapaxes(b, -1, -2), b_scale)
    total = np.zeros((*left.shape[:-1], right.shape[-2]), np.float32) if acc is None else acc
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(0, left.shape[-1], step):
            part = np.matmul(left[..., k : k + step], np.swapaxes(right[..., k : k + step], -1, -2))
            total = (total.astype(np.float64) + part).astype(np.float32)
    return total


def _scaled(x: Array, scale: Array) -> Array:
    """Rows [..., k] multiplied by the scale factors of their runs [..., k / run], in float64."""
    return x.astype(np.float64) * np.repeat(scale.astype(np.float64), x.shape[-1] // scale.shape[-1], axis=-1)
