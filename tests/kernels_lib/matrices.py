"""Operands of every type, order and alignment, and what their product has to be.

Matrices are views of arrays that are larger, so that strides and addresses are any; outputs stand in poison that must stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np

from tests.conftest import Device
from weft.ir.types import float32
from weft.kernels import MatmulConfig
from weft.layout.distributed.fragments import K_BITS
from weft.sim.numbers import products
from weft.sim.numbers.tensor_core import FP8, FULL, Precision, accumulate

TYPES: dict[str, Any] = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2, "int8": np.int8, "uint8": np.uint8, "int32": np.int32,
}  # fmt: skip
DEFAULTS = {
    "float16": "float16", "bfloat16": "bfloat16", "float32": "float32", "float8_e4m3fn": "bfloat16",
    "float8_e5m2": "bfloat16", "int8": "int32", "uint8": "int32",
}  # fmt: skip
POISON = 77
EDGE, SOME = 16, 96
"""Rows and columns that are looked at bit by bit: at each edge, and between."""
PROMOTED = 128
"""Elements along K after which sums of fp8 that are not fast are added in float32."""


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
    found: np.ndarray, a: np.ndarray, b: np.ndarray, scale_a: Any = None, scale_b: Any = None, out: str | None = None,
    config: MatmulConfig | None = None, fast: bool = True,
) -> None:  # fmt: skip
    """The product: every element within what the tensor core's cuts may do to it, and many of them bit for bit.

    `config` says in which parts K is summed, and `fast` whether sums of fp8 stay in the tensor core."""
    kind = np.dtype(TYPES[out or DEFAULTS[a.dtype.name]])
    assert found.dtype == kind
    if found.dtype.kind in "iu":
        np.testing.assert_array_equal(found, (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64))
        return
    adding = Adding.of(a.dtype.name, a.shape[1], config, fast)
    left, right = (operand_values(x) for x in (a, b))
    exact, bound = adding.bounds(left, right)
    close(found, exact, bound, scale_a, scale_b)
    rows, columns = adding.sample(found.shape)
    sums = adding.sums(left[rows], right[:, columns])
    part = found[np.ix_(rows, columns)]
    if scale_a is None and scale_b is None:
        np.testing.assert_array_equal(part.astype(np.float32), sums.astype(kind).astype(np.float32))
    else:
        scales = (factor if np.size(factor) < 2 else factor[at] for factor, at in ((scale_a, rows), (scale_b, columns)))
        close(part, sums.astype(np.float64), np.zeros(sums.shape), *scales)


def operand_values(x: np.ndarray) -> np.ndarray:
    """What tensor cores make of an operand: ten bits of mantissa of float32, else every bit."""
    return products.operand(x, float32) if x.dtype == np.float32 else x.astype(np.float32)


@dataclass(frozen=True)
class Adding:
    """How a kernel adds: `step` elements along K in an instruction, sums of the elements between two of `cuts` in an
    accumulator; where `chunk` is given, so many of them at a time are added to the accumulator in float32 by threads."""

    step: int
    cuts: tuple[int, ...]
    chunk: int
    precision: Precision | None

    @staticmethod
    def of(dtype: str, k: int, config: MatmulConfig | None, fast: bool) -> Adding:
        """The way of a configuration; None stands for one without parts."""
        bits = 8 * np.dtype(TYPES[dtype]).itemsize
        config = config or MatmulConfig()
        block_k = config.block_k or 1024 // bits
        blocks = -(-k // block_k)
        shares = min(config.shares, 1 << blocks.bit_length() - 1)
        each = -(-blocks // min(config.splits, blocks))
        firsts = [blocks * share // shares for share in range(shares)] if shares > 1 else range(0, blocks, each)
        cuts = (*(first * block_k for first in firsts), k)
        precision = None if dtype in ("int8", "uint8") else FP8 if bits == 8 else FULL
        return Adding(K_BITS // bits, cuts, 0 if fast else min(PROMOTED, block_k), precision)

    def sums(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """a @ b of float32 as hardware forms it, bit for bit; integers as float32 converts them."""
        if self.precision is None:
            return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
        total = np.zeros((len(a), b.shape[1]), np.float32)
        for first, end in pairwise(self.cuts):
            acc = np.zeros_like(total)
            for start in range(first, end, self.chunk or end - first):
                k = slice(start, min(start + (self.chunk or end), end))
                fresh = accumulate(a[:, k], b[k], np.zeros_like(total), self.step, self.precision)
                acc = acc + fresh
            total = total + acc
        return total

    def bounds(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """a @ b in float64, and how far from it hardware may be.

        An instruction cuts each of its terms and the accumulator to `fraction` bits below the largest one's exponent, and the
        sum to its mantissa's bits. None of all those is larger than the sum so far and the terms to come; that is taken over
        some instructions together."""
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        if self.precision is None:
            exact = wide_a @ wide_b
            return exact, np.abs(exact) * 2.0**-23
        cut = (self.step + 1) * 2.0**-self.precision.fraction + 2.0**-self.precision.mantissa
        together = self.step if self.precision == FP8 else 8 * self.step
        exact = np.zeros((len(a), b.shape[1]))
        bound = np.zeros_like(exact)
        for first, end in pairwise(self.cuts):
            acc = np.zeros_like(exact)
            off = np.zeros_like(exact)
            for start in range(first, end, together):
                k = slice(start, min(start + together, end))
                reach = np.abs(acc) + off + np.abs(wide_a[:, k]) @ np.abs(wide_b[k])
                off += -(-(k.stop - k.start) // self.step) * cut * reach
                acc += wide_a[:, k] @ wide_b[k]
            exact += acc
            # Threads add the parts, and round.
            bound += off + 2.0**-23 * (np.abs(exact) + bound + off)
        return exact, bound

    def sample(self, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns to look at bit by bit: the first, the last, and some between."""
        pick = np.random.default_rng(shape)
        found = [
            np.unique(np.r_[: min(size, EDGE), max(size - EDGE, 0) : size, pick.integers(0, size, SOME)])
            for size in shape
        ]
        return found[0], found[1]


def close(found: np.ndarray, exact: np.ndarray, bound: np.ndarray, scale_a: Any, scale_b: Any) -> None:
    """Elements of an output of floats are within a bound of exact sums, once these are scaled and rounded."""
    for factor, axis in ((scale_a, 1), (scale_b, 0)):
        if factor is not None:
            wide = np.asarray(factor, np.float64)
            wide = np.expand_dims(wide, axis) if wide.ndim == 1 and wide.size > 1 else wide
            exact, bound = exact * wide, bound * np.abs(wide)
            bound = bound + np.abs(exact) * 2.0**-23
    info = ml_dtypes.finfo(found.dtype)
    step = float(info.eps) / 2
    allowed = bound * (1 + step) + np.abs(exact) * step + float(info.smallest_subnormal)
    off = np.abs(found.astype(np.float64) - exact)
    worst = np.unravel_index(np.argmax(np.where(np.isnan(off), np.inf, off) - allowed), off.shape)
    assert np.all(off <= allowed), f"{found[worst]!r} at {worst}, want {exact[worst]!r} within {allowed[worst]!r}"
