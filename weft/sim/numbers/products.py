"""Matrix products on tensor cores: their numbers, and accumulators that are still being computed.

Sums with fp32 accumulators are those of an H200 bit for bit (`weft.sim.numbers.tensor_core`); with fp16 accumulators each
instruction's sum is rounded once to fp16, which the hardware may do otherwise in the last place. Integers are exact and wrap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.errors import Loc, UserError, hazard
from weft.ir.core import Op
from weft.ir.types import DType, float16, float32
from weft.layout.distributed.fragments import K_BITS
from weft.ops import mma
from weft.sim.machine.barriers import Agent
from weft.sim.machine.data import Array, Data
from weft.sim.numbers import arithmetic as numbers
from weft.sim.numbers.tensor_core import FP8, FULL, Precision, accumulate

if TYPE_CHECKING:
    from weft.sim.machine.tasks import Task

TF32_MASK = np.uint32(0xFFFFE000)
"""What the tensor core looks at of a float32: sign, exponent and ten bits of mantissa."""


def multiply(a: Array, b: Array, acc: Array | None, left: DType, right: DType, result: DType, chunk: int = 0) -> Array:
    """acc + a @ b (None: a @ b) of the tensor core; leading dimensions count matrices.

    `left`, `right` and `result` are the elements. With a `chunk`, so many elements along k are summed from zero and added to
    the rest in fp32."""
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


def multiply_exactly(
    a: Array, b: Array, acc: Array | None, left: DType, right: DType, result: DType
) -> Array:  # fmt: skip
    """acc + a @ b (None: a @ b) as `multiply`, but each instruction's sum along k, with the accumulator, is formed in float64
    and rounded once."""
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
    """An operand's values as the tensor core sees them, in float32, which holds them all."""
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
    """A product under way: its operation, the task that started it (`slot`) and its number there. `value` is its result, once
    it is there."""

    __slots__ = ("agent", "batch", "op", "slot", "value")

    def __init__(self, op: Op, slot: int, batch: int) -> None:
        self.op = op
        self.slot = slot
        self.batch = batch
        self.agent: Agent | None = None
        self.value: Array = None

    def result(self) -> Array:
        """The sum, which is computed now if nobody did before."""
        if self.agent is not None:
            self.agent.finish()
        return self.value


class InFlight(Data):
    """An accumulator of a product that is under way, which has no `array` yet. `taken`: what has taken it over, so that this
    name means nothing any more."""

    __slots__ = ("product", "taken")

    def __init__(self, product: Product) -> None:
        # `array` stays unset: whoever asks for it comes to `__getattr__`.
        self.undefined = None
        self.wrapped = None
        self.product = product
        self.taken: Op | None = None

    def __getattr__(self, name: str) -> Array:
        if name == "array":
            raise NotReady(self)
        raise AttributeError(name)


class NotReady(Exception):
    """An operation asks for the array of an accumulator in flight; `weft.sim.machine.execute` knows which one."""

    def __init__(self, accumulator: InFlight) -> None:
        super().__init__("an accumulator in flight has no value")
        self.accumulator = accumulator


def misused(task: Task, op: Op, accumulator: InFlight) -> UserError:
    """The report of an operation that uses an accumulator in flight, or one that something else has taken over."""
    started, taken = accumulator.product.op.loc, accumulator.taken
    related: tuple[tuple[str, Loc], ...] = () if started is None else (("the product was started here", started),)
    if taken is None:
        error = task.fail(hazard.ACCUMULATOR, op, partition=task.block.partition(task.slot))
    else:
        waited = taken.kind is mma.warpgroup_wait
        by = "a wait" if waited else "another product"
        error = task.fail(hazard.ACCUMULATOR_OLD, op, partition=task.block.partition(task.slot), by=by)
        if taken.loc is not None:
            related += ((f"{by} took it over here", taken.loc),)
    error.related = related
    return error
