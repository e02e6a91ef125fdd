"""`gl.warp`: what the threads of a warp exchange, by the short names; `gl.warp.sum` is `gl.warp_sum`.

Here too are reductions over groups of lanes: `gl.warp.lane_group_sum(num_lanes=8)(x)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.errors import fail
from weft.errors import thread as errors
from weft.language import arith
from weft.language.marks import builtin, with_parameters
from weft.language.tensor import tensor
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


def _grouped(what: str, val: Any, lanes: Any, stride: Any, combine: Callable[[Any, Any], tensor]) -> tensor:
    for number in (lanes, stride):
        if not isinstance(number, int) or number < 1 or number & (number - 1) or lanes * stride > WARP_SIZE:
            groups = f"groups of {lanes!r} lanes, {stride!r} apart"
            want = f"powers of two whose product is at most {WARP_SIZE}"
            raise fail(errors.SHUFFLE, what=what, by=groups, want=want)
    masks = [stride << bit for bit in range(lanes.bit_length() - 1)]
    return combined(what, val, combine, masks)


__all__ = [
    "broadcast", "lane_group_max", "lane_group_min", "lane_group_sum", "max", "min", "prefix_sum", "shuffle_down",
    "shuffle_idx", "shuffle_up", "shuffle_xor", "sum",
]  # fmt: skip
