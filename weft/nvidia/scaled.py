"""Block-scaled formats on the host: small floats with a scale per run of elements, as Blackwell's MMAs read them.

    a = quantise(x, "mxfp4")                    x is [M, K]; a.elements uint8 [M, K / 2], a.scales uint8 [M, K / 32]
    blocks = scale_blocks(a.scales)             uint8 [M / 128, K / 128, 32, 4, 4], the order that tcgen05_copy expects
    x @ y.T ~ a.values() @ b.values().T         b = quantise(y, "mxfp4"), y is [N, K]

Runs are along the last dimension. The code is NumPy, for inputs of kernels and references of tests; it is not fast.
(OCP Microscaling Formats specification; PTX ISA, "Alternate Floating-Point Data Formats" and "Block Scaling for mma.sync".)
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
    """A format: the element's name in `tcgen05_mma_scaled`, its dtype and largest value, and the elements per scale."""

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
"""Smallest and largest positive scale in e4m3."""
ROWS, RUNS = 128, 4
"""Rows and runs of one contiguous block of scales."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """A quantised array. `elements`: float8 [..., k], or for fp4 uint8 [..., k / 2], two per byte with the first in the low
    half.

    `scales` [..., k / run]: uint8 exponents of powers of two with bias 127 (255 is NaN), or float8_e4m3fn for nvfp4."""

    format: str
    elements: Array
    scales: Array

    @property
    def element(self) -> str:
        """The element's name in `tcgen05_mma_scaled`."""
        return KINDS[self.format].element

    def values(self) -> Array:
        """The represented numbers, float64 [..., k]. They are exact; runs with a NaN scale are NaN."""
        kind = KINDS[self.format]
        stored = unpack(self.elements).view(kind.dtype) if kind.element == "e2m1" else self.elements
        scales = self.scales.view(ml_dtypes.float8_e8m0fnu) if self.scales.dtype == np.uint8 else self.scales
        return stored.astype(np.float64) * np.repeat(scales.astype(np.float64), kind.run, axis=-1)


def quantise(x: Array, format: str) -> Scaled:  # noqa: A002 - it is what the formats are called
    """Quantise numbers [..., k] of any float type, rounding to nearest even and saturating.

    An mxfp scale is the power of two that brings the largest magnitude of its run into the elements' last binade; an nvfp4
    scale brings it to the largest element. A run with a number that is not finite gets zeros and a NaN scale. Raises
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
    """4-bit codes, uint8 [..., k], packed two per byte [..., k / 2] with the first in the low half."""
    return codes[..., ::2] & np.uint8(15) | codes[..., 1::2] << np.uint8(4)


def unpack(packed: Array) -> Array:
    """The inverse of `pack`: bytes [..., k / 2] to 4-bit codes, uint8 [..., k]."""
    halves = np.stack((packed & np.uint8(15), packed >> np.uint8(4)), -1)
    return halves.reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def scale_blocks(scales: Array) -> Array:
    """Scales [rows, runs] in the order of tensor memory: [rows / 128, runs / 4, 32, 4, 4], padded with the smallest scale.

    Element [i, j, r, q, s] is the scale of row 128 i + 32 q + r and run 4 j + s. Each pair (i, j) is a block of 512 bytes,
    which one tcgen05_copy writes to 32 lanes by 4 columns. Raises LaunchError (scaled-scales)."""
    if scales.ndim != 2 or scales.itemsize != 1:
        raise fail(errors.QUANTISED_SCALES, dtype=scales.dtype, shape=list(scales.shape))
    rows, runs = (-(-size // step) for size, step in zip(scales.shape, (ROWS, RUNS), strict=True))
    padded: Array = np.zeros((rows * ROWS, runs * RUNS), np.uint8)
    padded[: scales.shape[0], : scales.shape[1]] = scales.view(np.uint8)
    blocks = padded.reshape(rows, 4, 32, runs, RUNS).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(blocks).view(scales.dtype)
