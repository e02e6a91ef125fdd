"""MMA on tensor cores: the numerics, and accumulators in flight.

fp32 accumulators equal those of an H200 bit for bit (`weft.sim.numbers.tensor_core`). fp16 accumulators are rounded once per
instruction, and may differ from the hardware's in the last bit. Integers are exact and wrap.
"""

from __future__ import annotations

import numpy as np

from weft.ir.core import Op
from weft.ir.types import DType, float16, float32
from weft.layout.distributed.fragments import K_BITS
from weft.sim.machine.barriers import Agent
from weft.sim.machine.data import Array, Data, arange, where
from weft.sim.numbers import arithmetic as numbers
from weft.sim.numbers.tensor_core import FP8, FULL, Precision, accumulate

TF32_MASK = np.uint32(0xFFFFE000)
"""The bits of a float32 that the tensor core reads as tf32: sign, exponent and ten bits of mantissa."""


def tf32_rounded(bits: Array) -> Array:
    """The bits of float32 numbers rounded to the nearest tf32, ties to even. Infinities and NaNs stay."""
    exponent = np.uint32(0x7F800000)
    nearest = (bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))) & TF32_MASK
    return where(bits & exponent == exponent, bits, nearest)


def multiply(a: Array, b: Array, acc: Array | None, left: DType, right: DType, result: DType, chunk: int = 0) -> Array:
    """`acc + a @ b` (`a @ b` without `acc`) on a tensor core; leading dimensions are batch dimensions.

    `left`, `right` and `result` are element types. With a `chunk`, every `chunk` elements along k accumulate from zero, and
    the partial accumulators are added in fp32."""
    total = np.zeros((*a.shape[:-1], b.shape[-1]), numbers.numpy_dtype(result)) if acc is None else acc
    if not left.is_floating():
        exact = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
        return (total.astype(np.int64) + exact).astype(np.int32)
    step = K_BITS // left.bits
    precision = FP8 if left.bits == 8 else FULL
    x, y = operand(a, left), operand(b, right)
    if not chunk:
        return _sum(x, y, total, step, precision, result)
    zero = np.zeros_like(total)
    for k in range(0, a.shape[-1], chunk):
        part = _sum(x[..., k : k + chunk], y[..., k : k + chunk, :], zero, step, precision, result)
        total = numbers.through32(np.add, total, part)
    return total


def multiply_sync(a: Array, b: Array, acc: Array, left: DType, right: DType, result: DType) -> Array:
    """`multiply` as `mma.sync` computes it.

    ptxas (13.0; sm_90a and sm_100a) expands an m16n8k32 of fp8 to two HMMA.16816 of float16, which add to zero: one of the
    lower two elements of each register, then one of the upper two. An FADD adds the accumulator. So fp8 keeps the accuracy of
    float16 here, which wgmma's does not.
    """
    if not left.is_fp8():
        return multiply(a, b, acc, left, right, result)
    k, length = arange(a.shape[-1]), K_BITS // left.bits
    order: Array = k[np.lexsort((k, k % 4 >= 2, k // length))]
    x, y = (operand(part, element) for part, element in ((a[..., order], left), (b[..., order, :], right)))
    return multiply(x, y, acc, float16, float16, result, chunk=length)


def multiply_exactly(
    a: Array, b: Array, acc: Array | None, left: DType, right: DType, result: DType
) -> Array:  # fmt: skip
    """`multiply`, except that each instruction adds its products along k and the accumulator in float64, and rounds once."""
    if not left.is_floating():
        return multiply(a, b, acc, left, right, result)
    kind = numbers.numpy_dtype(result)
    total = np.zeros((*a.shape[:-1], b.shape[-1]), kind) if acc is None else acc
    x, y = operand(a, left).astype(np.float64), operand(b, right).astype(np.float64)
    step = K_BITS // left.bits
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(0, a.shape[-1], step):
            total = (total + np.matmul(x[..., k : k + step], y[..., k : k + step, :])).astype(kind)
    return total


def operand(x: Array, element: DType) -> Array:
    """An operand's values as the tensor core reads them, in float32, which represents all of them."""
    if element == float32:
        return (x.view(np.uint32) & TF32_MASK).view(np.float32)
    return x.astype(np.float32)


def _sum(a: Array, b: Array, acc: Array, step: int, precision: Precision, result: DType) -> Array:
    if result != float16:
        return accumulate(a, b, acc, step, precision)
    for k in range(0, a.shape[-1], step):
        wide = accumulate(a[..., k : k + step], b[..., k : k + step, :], acc.astype(np.float32), step, precision)
        acc = wide.astype(np.float16)
    return acc


class Product:
    """An asynchronous MMA: its operation, the issuing task (`slot`), and its number in that task's groups. `value`: the result,
    once it is computed."""

    __slots__ = ("agent", "batch", "op", "slot", "value")

    def __init__(self, op: Op, slot: int, batch: int) -> None:
        self.op = op
        self.slot = slot
        self.batch = batch
        self.agent: Agent | None = None
        self.value: Array = None

    def result(self) -> Array:
        """The new accumulator; computed now if it has not been."""
        if self.agent is not None:
            self.agent.finish()
        return self.value


class InFlight(Data):
    """The accumulator of an MMA in flight, which has no `array` yet. `taken`: the operation that has consumed it, after which
    this value must not be used."""

    __slots__ = ("product", "taken")

    def __init__(self, product: Product) -> None:
        # `array` stays unset, so that an access to it reaches `__getattr__`.
        self.undefined = None
        self.wrapped = None
        self.product = product
        self.taken: Op | None = None

    def __getattr__(self, name: str) -> Array:
        if name == "array":
            raise NotReady(self)
        raise AttributeError(name)


class NotReady(Exception):
    """An operation reads the array of an accumulator in flight; `weft.sim.machine.tasks.execute` knows the operation."""

    def __init__(self, accumulator: InFlight) -> None:
        super().__init__("an accumulator in flight has no value")
        self.accumulator = accumulator
