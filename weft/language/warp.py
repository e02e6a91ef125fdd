"""`gl.warp`: what the threads of a warp exchange, by the short names; `gl.warp.sum` is `gl.warp_sum`."""

from __future__ import annotations

from weft.language.thread import (
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

__all__ = [
    "broadcast", "max", "min", "prefix_sum", "shuffle_down", "shuffle_idx", "shuffle_up", "shuffle_xor", "sum",
]  # fmt: skip
