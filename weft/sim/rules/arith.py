"""Arithmetic, comparison, selection and casts, on arrays of any shape.

Marks propagate from operands to results: undefined elements, and elements that wrapped (`weft.sim.machine.wraps`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from weft.errors import Loc
from weft.ir.core import Op
from weft.ir.types import DType, Pointer, RegsType, TileType, Type, int64
from weft.ops import arith
from weft.ops.check import dtype_of
from weft.sim.machine import logic, wraps
from weft.sim.machine.data import Array, Data, Mark, marked, undefined_in, union
from weft.sim.machine.tasks import DIVIDED, Task
from weft.sim.machine.wraps import CAUSE, WORD, inexact, wrapped_in
from weft.sim.numbers import arithmetic as numbers
from weft.sim.numbers import divisions
from weft.sim.numbers.arithmetic import numpy_dtype
from weft.sim.rule import rule

COMPARE: dict[str, Callable[..., Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def shape_of(threads: int, type: Type) -> tuple[int, ...]:
    """The shape of a constant's array."""
    if isinstance(type, TileType):
        return type.shape
    return (threads, type.count) if isinstance(type, RegsType) else ()


@rule(arith.constant)
def _constant(task: Task, op: Op) -> Data:
    return _constant_of(op, task.threads)


@lru_cache(maxsize=4096)
def _constant_of(op: Op, threads: int) -> Data:
    type = op.result.type
    assert isinstance(type.element, DType)
    number = numbers.constant(op.attrs["value"], type.element)
    shape = shape_of(threads, type)
    return Data(np.broadcast_to(number, shape) if shape else number)


@cache
def _range(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _wrapping(
    name: str, compute: Callable[[Array, Array], Array], alone: Callable[[int, int], int]
) -> Callable[..., Data]:
    """The rule of `add`, `sub` or `mul`; int32 overflow is tracked. `alone`: the same operation on two Python integers."""

    def run(task: Task, op: Op, lhs: Data, rhs: Data) -> Data:
        dtype = lhs.array.dtype
        if dtype.kind not in "iu":
            return Data(numbers.through32(compute, lhs.array, rhs.array), undefined_in((lhs, rhs)))
        if not (lhs.array.ndim or rhs.array.ndim):
            low, high = _range(dtype)
            exact = alone(int(lhs.array), int(rhs.array))
            if low <= exact <= high:
                return Data(dtype.type(exact), undefined_in((lhs, rhs)), union(lhs.wrapped, rhs.wrapped))
        result = compute(lhs.array, rhs.array)
        wrapped = union(lhs.wrapped, rhs.wrapped)
        if dtype == np.int32:
            wrapped = union(wrapped, _overflowed(name, lhs.array, rhs.array, result, op.loc))
        return Data(result, undefined_in((lhs, rhs)), wrapped)

    return run


def _overflowed(name: str, lhs: Array, rhs: Array, result: Array, loc: Loc | None) -> Mark | None:
    return marked(numbers.overflow(name, lhs, rhs, result), CAUSE, loc, WORD)


rule(arith.add)(_wrapping("add", np.add, int.__add__))
rule(arith.sub)(_wrapping("sub", np.subtract, int.__sub__))
rule(arith.mul)(_wrapping("mul", np.multiply, int.__mul__))


def _pure(
    function: Callable[..., Array], wrapped: Callable[[tuple[Data, ...]], Mark | None] = inexact
) -> Callable[..., Data]:
    """A rule that applies a function to the operands' arrays. `wrapped`: computes the result's `wrapped` mark."""

    def run(task: Task, op: Op, *operands: Data) -> Data:
        return Data(function(*[data.array for data in operands]), undefined_in(operands), wrapped(operands))

    return run


rule(arith.div_rn)(_pure(numbers.divide_floats))
rule(arith.xor)(_pure(np.bitwise_xor, wrapped_in))
rule(arith.shr)(_pure(np.right_shift, lambda operands: wraps.shifted_right(*operands)))
rule(arith.umulhi)(_pure(numbers.high_product))
rule(arith.popcount)(_pure(numbers.popcount))
rule(arith.fma)(_pure(numbers.fma))
_PACKED: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda x, y: numbers.through32(np.add, x, y),
    "sub": lambda x, y: numbers.through32(np.subtract, x, y),
    "mul": lambda x, y: numbers.through32(np.multiply, x, y),
    "min": numbers.minimum,
    "max": numbers.maximum,
}


@rule(arith.packed, arith.packed_fma)
def _packed(task: Task, op: Op, *operands: Data) -> Data:
    function = numbers.fma if op.kind is arith.packed_fma else _PACKED[op.attrs["kind"]]
    return _pure(function if dtype_of(op.result) != int64 else _of_pairs(function))(task, op, *operands)


def _of_pairs(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of float32 for both halves of each int64."""

    def run(*operands: Array) -> Array:
        halves = [np.ascontiguousarray(x)[..., None].view(np.float32) for x in operands]
        return np.ascontiguousarray(function(*halves)).view(np.int64)[..., 0]

    return run


def _dividing(
    integers: Callable[[Array, Array], Array],
    floats: Callable[[Array, Array], Array],
    alone: Callable[[int, int], int],
) -> Callable[..., Data]:
    """The rule of `div` or `rem`. `alone`: the same operation on a non-negative and a positive Python integer."""

    def run(task: Task, op: Op, lhs: Data, rhs: Data) -> Data:
        undefined = undefined_in((lhs, rhs))
        if lhs.array.dtype.kind not in "iu":
            return Data(floats(lhs.array, rhs.array), undefined)
        if not (lhs.array.ndim or rhs.array.ndim) and lhs.array >= 0 and rhs.array > 0:
            quotient = lhs.array.dtype.type(alone(int(lhs.array), int(rhs.array)))
            return Data(quotient, undefined, inexact((lhs, rhs)))
        result = integers(lhs.array, rhs.array)
        if lhs.array.dtype.kind == "i" and (np.min(lhs.array) < 0 or np.min(rhs.array) < 0):
            divisions.advise(task.machine.report, op, lhs.array, rhs.array, undefined)
        zero = marked(rhs.array == 0, DIVIDED, op.loc)
        return Data(result, union(undefined, zero), inexact((lhs, rhs)))

    return run


rule(arith.div)(_dividing(numbers.divide_integers, numbers.divide_floats, int.__floordiv__))
rule(arith.rem)(_dividing(np.fmod, numbers.remainder_floats, int.__mod__))


@rule(arith.minimum)
def _minimum(task: Task, op: Op, lhs: Data, rhs: Data) -> Data:
    array = numbers.minimum(lhs.array, rhs.array, op.attrs["nan"])
    return Data(array, undefined_in((lhs, rhs)), inexact((lhs, rhs)))


@rule(arith.maximum)
def _maximum(task: Task, op: Op, lhs: Data, rhs: Data) -> Data:
    array = numbers.maximum(lhs.array, rhs.array, op.attrs["nan"])
    return Data(array, undefined_in((lhs, rhs)), inexact((lhs, rhs)))


@rule(arith.clamp)
def _clamp(task: Task, op: Op, x: Data, low: Data, high: Data) -> Data:
    array = numbers.clamp(x.array, low.array, high.array, op.attrs["nan"])
    return Data(array, undefined_in((x, low, high)), inexact((x, low, high)))


@rule(arith.and_)
def _and(task: Task, op: Op, lhs: Data, rhs: Data) -> Data:
    return logic.conjunction(lhs, rhs)


@rule(arith.or_)
def _or(task: Task, op: Op, lhs: Data, rhs: Data) -> Data:
    return logic.disjunction(lhs, rhs)


@rule(arith.shl)
def _shl(task: Task, op: Op, lhs: Data, rhs: Data) -> Data:
    result = np.left_shift(lhs.array, rhs.array)
    undefined, wrapped = undefined_in((lhs, rhs)), wraps.shifted_left(lhs, rhs)
    if result.dtype != np.int32:
        return Data(result, undefined, wrapped)
    lost = marked(np.right_shift(result, rhs.array) != lhs.array, CAUSE, op.loc, WORD)
    return Data(result, undefined, union(wrapped, lost))


@rule(arith.cmp)
def _cmp(task: Task, op: Op, lhs: Data, rhs: Data) -> Data:
    array = COMPARE[op.attrs["predicate"]](lhs.array, rhs.array)
    return Data(array, undefined_in((lhs, rhs)), inexact((lhs, rhs)))


@rule(arith.select)
def _select(task: Task, op: Op, condition: Data, lhs: Data, rhs: Data) -> Data:
    return logic.selection(condition, lhs, rhs)


@rule(arith.cast)
def _cast(task: Task, op: Op, x: Data) -> Data:
    target: DType = op.attrs["dtype"]
    array = numbers.cast(x.array, dtype_of(op.uses[0]), target, op.attrs["rounding"])
    return Data(array, x.undefined, wraps.of_cast(x, target))


@rule(arith.unpack_int4)
def _unpack_int4(task: Task, op: Op, x: Data) -> tuple[Data, ...]:
    dtypes = [dtype_of(result) for result in op.results]
    found = numbers.four_bit_integers(x.array, numpy_dtype(dtypes[0]))
    return tuple(Data(array, x.undefined) for array in found)


@rule(arith.bitcast)
def _bitcast(task: Task, op: Op, x: Data) -> Data:
    element: DType | Pointer = op.attrs["element"]
    return Data(x.array.view(numpy_dtype(element)), x.undefined, x.wrapped)


@rule(arith.math)
def _math(task: Task, op: Op, x: Data) -> Data:
    wrapped = x.wrapped if op.attrs["fn"] == "neg" else inexact((x,))
    return Data(numbers.function(op.attrs["fn"], x.array), x.undefined, wrapped)
