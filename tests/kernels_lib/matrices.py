"""Operands of every type, order and alignment, and what their product has to be.

Matrices are views of arrays that are larger, so that strides and addresses are any; outputs stand in poison that must stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.conftest import Device

TYPES: dict[str, Any] = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2, "int8": np.int8, "uint8": np.uint8, "int32": np.int32,
}  # fmt: skip
DEFAULTS = {
    "float16": "float16", "bfloat16": "bfloat16", "float32": "float32", "float8_e4m3fn": "bfloat16",
    "float8_e5m2": "bfloat16", "int8": "int32", "uint8": "int32",
}  # fmt: skip
POISON = 77
# Bits that count: of operands as the tensor core reads them, of a sum of fp8 products, and of other sums.
TF32_BITS, FP8_SUM_BITS, SUM_BITS = 10, 13, 22


@dataclass(frozen=True)
class Lies:
    """How a matrix lies in memory: its order, "C" or "F", unused elements at the end of each row (column), and in front."""

    order: str = "C"
    gap: int = 0
    first: int = 0


@dataclass
class Operand:
    """A matrix on a device and its values."""

    array: Any
    values: np.ndarray


def operand(device: Device, rng: np.random.Generator, dtype: str, shape: tuple[int, int], lies: Lies) -> Operand:
    """A random matrix. Unused elements around it are NaN, where there is one."""
    kind = TYPES[dtype]
    long, count = shape if lies.order == "C" else shape[::-1]
    values = random(rng, dtype, (long, count))
    whole = np.full(lies.first + long * (count + lies.gap), POISON, kind)
    view(whole, lies, long, count)[...] = values
    array = view(device.array(whole), lies, long, count)
    return Operand(array, values) if lies.order == "C" else Operand(array.T, values.T)


def view(flat: Any, lies: Lies, long: int, count: int) -> Any:
    """The matrix within a flat array, in the order of memory."""
    return flat[lies.first :].reshape(long, count + lies.gap)[:, :count]


def random(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Small integers of their types, and normal floats."""
    if dtype in ("int8", "uint8"):
        return rng.integers(-128 if dtype == "int8" else 0, 128, shape).astype(TYPES[dtype])
    return rng.normal(size=shape).astype(np.float32).astype(TYPES[dtype])


def output(device: Device, dtype: str, shape: tuple[int, int], lies: Lies) -> tuple[Any, Any]:
    """A poisoned output, and the flat array that it is part of."""
    long, count = shape if lies.order == "C" else shape[::-1]
    flat = device.array(np.full(lies.first + long * (count + lies.gap), POISON, TYPES[dtype]))
    found = view(flat, lies, long, count)
    return (found if lies.order == "C" else found.T), flat


def kept_poison(device: Device, flat: Any, shape: tuple[int, int], lies: Lies) -> None:
    """Everything around the output is as it was."""
    long, count = shape if lies.order == "C" else shape[::-1]
    host = np.array(device.numpy(flat))
    view(host, lies, long, count)[...] = POISON
    np.testing.assert_array_equal(host.astype(np.float64), POISON, "memory around the output was written")


def check(
    found: np.ndarray, a: np.ndarray, b: np.ndarray, scale_a: Any = None, scale_b: Any = None, out: str | None = None
) -> None:
    """The product, element by element within what rounding may do to it."""
    dtype, bits = a.dtype.name, SUM_BITS
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    exact, size = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
    bound = size * np.exp2(-FP8_SUM_BITS if dtype.startswith("float8") else -bits)
    if dtype == "float32":
        bound = bound + 2 * size * np.exp2(-TF32_BITS)
    for factor, axis in ((scale_a, 1), (scale_b, 0)):
        if factor is not None:
            wide = np.asarray(factor, np.float64)
            wide = np.expand_dims(wide, axis) if wide.ndim == 1 and wide.size > 1 else wide
            exact, bound = exact * wide, bound * np.abs(wide)
            bound = bound + np.abs(exact) * np.exp2(-23)
    kind = TYPES[out or DEFAULTS[dtype]]
    assert found.dtype == kind
    if found.dtype.kind in "iu":
        np.testing.assert_array_equal(found, exact.astype(np.int64))
        return
    step = float(ml_dtypes.finfo(kind).eps) / 2
    allowed = bound * (1 + step) + np.abs(exact) * step + float(ml_dtypes.finfo(kind).smallest_subnormal)
    off = np.abs(found.astype(np.float64) - exact)
    worst = np.unravel_index(np.argmax(np.where(np.isnan(off), np.inf, off) - allowed), off.shape)
    assert np.all(off <= allowed), f"{found[worst]!r} at {worst}, want {exact[worst]!r} within {allowed[worst]!r}"
