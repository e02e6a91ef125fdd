"""Block-scaled numbers on the host: small floats with a scale for each run of elements, as Blackwell multiplies them.

    a = quantise(x, "mxfp4")                    x is [M, K]; a.elements uint8 [M, K / 2], a.scales uint8 [M, K / 32]
    blocks = scale_blocks(a.scales)             uint8 [M / 128, K / 128, 32, 4, 4], which tcgen05_copy takes as they are
    x @ y.T ~ a.values() @ b.values().T         b = quantise(y, "mxfp4"), y is [N, K]

Runs lie along the last dimension. This is NumPy, for inputs of kernels and references of tests; it is not fast.
(OCP Microscaling Formats specification; PTX ISA, "Alternate Floating-Point Data Formats" and "Block Scaling".)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np

from weft.errors import fail
from weft.errors import kernels as errors

Array: TypeAlias = Any
"""A NumPy array."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A format: elements by the name that `tcgen05_mma_scaled` takes, their type and largest value, elements per scale."""

    element: Literal["e2m1", "e4m3", "e5m2"]
    dtype: Any
    largest: float
    run: int


KINDS: dict[str, Kind] = {
    "mxfp8e4m3": Kind("e4m3", ml_dtypes.float8_e4m3fn, 448.0, 32),
    "mxfp8e5m2": Kind("e5m2", ml_dtypes.float8_e5m2, 57344.0, 32),
    "mxfp4": Kind("e2m1", ml_dtypes.float4_e2m1fn, 6.0, 32),
    "nvfp4": Kind("e2m1", ml_dtypes.float4_e2m1fn, 6.0, 16),
}
SCALE_BIAS, NAN_SCALE = 127, 255
LEAST_SCALE, LARGEST_SCALE = 2.0**-9, 448.0
"""Of e4m3."""
ROWS, RUNS = 128, 4
"""Rows and runs of a block of scales."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """A quantised array. `elements`: float8 [..., k], or of fp4 uint8 [..., k / 2], two to a byte, the first in the low half.
    `scales` [..., k / run]: uint8, powers of two by their exponent plus 127 (255 is NaN), or of nvfp4 float8_e4m3fn."""

    format: str
    elements: Array
    scales: Array

    @property
    def element(self) -> str:
        """What `tcgen05_mma_scaled` calls the elements."""
        return KINDS[self.format].element

    def values(self) -> Array:
        """What the numbers stand for, float64 [..., k]: exact, except that nothing is said of scales that are NaN."""
        kind = KINDS[self.format]
        stored = unpack(self.elements).view(kind.dtype) if kind.element == "e2m1" else self.elements
        scales = self.scales.view(ml_dtypes.float8_e8m0fnu) if self.scales.dtype == np.uint8 else self.scales
        return stored.astype(np.float64) * np.repeat(scales.astype(np.float64), kind.run, axis=-1)


def quantise(x: Array, format: str) -> Scaled:  # noqa: A002 - it is what the formats are called
    """Numbers [..., k] of any float type, rounded to nearest even, those too large to the largest.

    A scale of mxfp is the power of two that brings the largest magnitude of its run into the elements' last binade; one of
    nvfp4 brings it to the largest element. A run with numbers that are not finite gets zeros and a scale that is NaN. Raises
    LaunchError (scaled-format, scaled-runs)."""
    if format not in KINDS:
        raise fail(errors.QUANTISED_FORMAT, format=format, known=", ".join(map(repr, KINDS)))
    kind = KINDS[format]
    wide: Array = np.asarray(x).astype(np.float64)
    if not wide.ndim or wide.shape[-1] % kind.run:
        k = wide.shape[-1] if wide.ndim else 0
        raise fail(errors.QUANTISED_RUNS, format=format, run=kind.run, shape=list(wide.shape), k=k)
    runs: Array = wide.reshape(*wide.shape[:-1], -1, kind.run)
    finite: Array = np.isfinite(runs).all(-1)
    runs = np.where(finite[..., None], runs, 0.0)
    top: Array = np.abs(runs).max(-1)
    if format == "nvfp4":
        scales: Array = np.clip(top / kind.largest, LEAST_SCALE, LARGEST_SCALE).astype(ml_dtypes.float8_e4m3fn)
        factors = scales.astype(np.float64)
        scales[~finite] = np.nan
    else:
        exponents = np.where(top > 0, np.frexp(top)[1] - np.frexp(kind.largest)[1], 0).clip(-SCALE_BIAS, SCALE_BIAS)
        factors = np.ldexp(1.0, exponents)
        scales = np.where(finite, exponents + SCALE_BIAS, NAN_SCALE).astype(np.uint8)
    inside = np.clip(runs / factors[..., None], -kind.largest, kind.largest)
    elements = inside.astype(kind.dtype).reshape(wide.shape)
    return Scaled(format, pack(elements.view(np.uint8)) if kind.element == "e2m1" else elements, scales)


def pack(codes: Array) -> Array:
    """Four bits each, uint8 [..., k], two to a byte [..., k / 2], the first in the low half."""
    return codes[..., ::2] & np.uint8(15) | codes[..., 1::2] << np.uint8(4)


def unpack(packed: Array) -> Array:
    """Bytes [..., k / 2] as four bits each, uint8 [..., k]."""
    halves = np.stack((packed & np.uint8(15), packed >> np.uint8(4)), -1)
    return halves.reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def scale_blocks(scales: Array) -> Array:
    """Scales [rows, runs] in the order of tensor memory: [rows / 128, runs / 4, 32, 4, 4], padded with the least scale.

    Element [i, j, r, q, s] is the scale of row 128 i + 32 q + r and run 4 j + s: each of the first two indices names 512 bytes
    that one tcgen05_copy takes to 32 lanes by 4 columns. Raises LaunchError (scaled-scales)."""
    if scales.ndim != 2 or scales.itemsize != 1:
        raise fail(errors.QUANTISED_SCALES, dtype=scales.dtype, shape=list(scales.shape))
    rows, runs = (-(-size // step) for size, step in zip(scales.shape, (ROWS, RUNS), strict=True))
    padded: Array = np.zeros((rows * ROWS, runs * RUNS), np.uint8)
    padded[: scales.shape[0], : scales.shape[1]] = scales.view(np.uint8)
    blocks = padded.reshape(rows, 4, 32, runs, RUNS).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(blocks).view(scales.dtype)
