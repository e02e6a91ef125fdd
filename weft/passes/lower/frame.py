"""The threads that run what is being lowered: the kernel's, or a partition's."""

from __future__ import annotations

from weft.ir.core import Op, Value
from weft.ir.types import DType
from weft.layout import WARP_SIZE
from weft.passes.lower.forms import Table

LANE_BITS = WARP_SIZE.bit_length() - 1


class Frame:
    """The threads that run what is being lowered, and what is known at the entry to their code.

    `thread_bits` of a thread's number. `entry` takes what depends on the thread only; `constants` and `threads` remember it,
    and `maps` the linear map that a value of `threads` is of the thread's number.
    """

    __slots__ = ("constants", "entry", "maps", "thread_bits", "threads")

    def __init__(self, num_warps: int) -> None:
        self.thread_bits = LANE_BITS + num_warps.bit_length() - 1
        self.entry: list[Op] = []
        self.constants: dict[tuple[int, DType], Value] = {}
        self.threads: dict[tuple[object, ...], Value | None] = {}
        self.maps: dict[Value, tuple[Table, Table, Table]] = {}
