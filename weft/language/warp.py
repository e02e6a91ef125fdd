"""`gl.warp`: what the threads of a warp exchange, by the short names; `gl.warp.sum` is `gl.warp_sum`.

Here too are reductions over groups of lanes, `gl.warp.lane_group_sum(num_lanes=8)(x)`; reductions by any function,
`gl.warp.reduce(func=f)(x)`; and votes, `gl.warp.vote(x > 0)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.errors import fail
from weft.errors import thread as errors
from weft.ir.types import DType, int1, uint32
from weft.language import arith, logic
from weft.language.marks import builtin, with_parameters
from weft.language.promote import to_tensor
from weft.language.reduction import callable_of
from weft.language.runtime_value import name_of
from weft.language.tensor import apply, tensor
from weft.language.thread import (
    WARP_SIZE,
    combined,
    shuffle_down,
    shuffle_idx,
    shuffle_up,
    shuffle_xor,
    warp_broadcast,
    warp_max,
    warp_min,
    warp_prefix_sum,
    warp_sum,
)
from weft.language.vector import check_vector
from weft.ops import warp as ops

broadcast = warp_broadcast
max = warp_max
min = warp_min
prefix_sum = warp_prefix_sum
sum = warp_sum


@with_parameters("num_lanes", "stride")
@builtin
def lane_group_sum(val: Any, *, num_lanes: int, stride: int = 1) -> tensor:
    """The sum over a group of `num_lanes` lanes that are `stride` lanes apart, in each of them.

    With stride 1 these are neighbours: of 8, lanes 0 to 7, 8 to 15 and so on. Both numbers are powers of two. All threads of
    the warp execute it. Raises thread-value-needed, thread-shuffle."""
    return _grouped("gl.warp.lane_group_sum", val, num_lanes, stride, arith.add)


@with_parameters("num_lanes", "stride")
@builtin
def lane_group_max(val: Any, *, num_lanes: int, stride: int = 1) -> tensor:
    """The maximum over a group of lanes, as `lane_group_sum`; NaNs are ignored."""
    return _grouped("gl.warp.lane_group_max", val, num_lanes, stride, arith.maximum)


@with_parameters("num_lanes", "stride")
@builtin
def lane_group_min(val: Any, *, num_lanes: int, stride: int = 1) -> tensor:
    """The minimum over a group of lanes, as `lane_group_sum`; NaNs are ignored."""
    return _grouped("gl.warp.lane_group_min", val, num_lanes, stride, arith.minimum)


@with_parameters("func", "shuffle")
@builtin
def reduce(val: Any, *, func: Any, shuffle: Any = shuffle_xor) -> tensor:
    """A reduction over the threads of a warp by any function: `func(x, y)` is a `@jit` function of two values, or one of the
    language, such as `gl.maximum`.

    Step by step it combines a thread's value with that of another lane, `func(x, shuffle(x, distance))`, for distances of 16 to
    1. With `shuffle_xor` each thread has the result, and if `func` is associative and commutative they are equal; with
    `shuffle_down` that of lane 0 counts. Raises thread-value-needed, tile-combine-function."""
    return _reduced("gl.warp.reduce", val, func, shuffle, WARP_SIZE, 1)


@with_parameters("func", "num_lanes", "shuffle", "stride")
@builtin
def lane_group_reduce(val: Any, *, func: Any, num_lanes: int, shuffle: Any = shuffle_xor, stride: int = 1) -> tensor:
    """A reduction over groups of lanes by any function: groups as for `lane_group_sum`, functions as for `reduce`."""
    return _reduced("gl.warp.lane_group_reduce", val, func, shuffle, num_lanes, stride)


@with_parameters("ret_type")
@builtin
def vote(val: Any, *, ret_type: DType = uint32) -> tensor:
    """The flags of all threads of a warp as a uint32, that of lane `i` in bit `i`: equal in each of them.

    `gl.warp.vote(x > 0) != 0` tells whether any thread has a positive number, and `gl.popcount` of a vote counts them. A number
    is true if it is not 0. All threads of the warp execute it. Raises thread-value-needed, thread-vote."""
    x = check_vector("gl.warp.vote", to_tensor(val) if isinstance(val, (int, float)) else val)
    if ret_type != uint32 or not x.is_scalar:
        raise fail(errors.VOTE, got=f"{name_of(x)} and ret_type={ret_type!r}")
    return apply(ops.vote, x if x.dtype == int1 else logic.compare("ne", x, 0))


def _reduced(what: str, val: Any, func: Any, shuffle: Any, lanes: int, stride: int) -> tensor:
    value = check_vector(what, to_tensor(val) if isinstance(val, (int, float)) else val)
    combine, exchange = callable_of(what, func), callable_of(what, shuffle)
    for mask in reversed(_masks(what, lanes, stride)):
        value = check_vector(what, combine(value, exchange(value, mask)))
    return value


def _grouped(what: str, val: Any, lanes: Any, stride: Any, combine: Callable[[Any, Any], tensor]) -> tensor:
    return combined(what, val, combine, _masks(what, lanes, stride))


def _masks(what: str, lanes: Any, stride: Any) -> list[int]:
    """The distances of lanes of a group, the smallest first. Raises thread-shuffle."""
    for number in (lanes, stride):
        if not isinstance(number, int) or number < 1 or number & (number - 1) or lanes * stride > WARP_SIZE:
            groups = f"groups of {lanes!r} lanes, {stride!r} apart"
            want = f"powers of two whose product is at most {WARP_SIZE}"
            raise fail(errors.SHUFFLE, what=what, by=groups, want=want)
    return [stride << bit for bit in range(lanes.bit_length() - 1)]


__all__ = [
    "broadcast", "lane_group_max", "lane_group_min", "lane_group_reduce", "lane_group_sum", "max", "min", "prefix_sum",
    "reduce", "shuffle_down", "shuffle_idx", "shuffle_up", "shuffle_xor", "sum", "vote",
]  # fmt: skip
