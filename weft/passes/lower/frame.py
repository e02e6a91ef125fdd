"""The threads that execute the code being lowered, the kernel's or a partition's, and values computed once at its entry."""

from __future__ import annotations

from weft.ir.core import Op, Value
from weft.ir.types import DType
from weft.layout import WARP_SIZE
from weft.ops.regs import Table

LANE_BITS = WARP_SIZE.bit_length() - 1


class Frame:
    """The threads that execute the code being lowered, and the values that are computed at its entry.

    `thread_bits` is the number of bits of a thread's index. `entry` are operations that depend on the thread only, hoisted to
    the entry. `constants` and `threads` are caches of their results; `maps` gives the linear map of the thread's index that a
    value of `threads` computes.
    """

    __slots__ = ("constants", "entry", "maps", "thread_bits", "threads")

    def __init__(self, num_warps: int) -> None:
        self.thread_bits = LANE_BITS + num_warps.bit_length() - 1
        self.entry: list[Op] = []
        self.constants: dict[tuple[int, DType], Value] = {}
        self.threads: dict[tuple[object, ...], Value | None] = {}
        self.maps: dict[Value, tuple[Table, Table, Table]] = {}
