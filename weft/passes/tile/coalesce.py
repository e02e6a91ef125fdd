"""The layout in which a tile of addresses makes wide and contiguous memory accesses.

Threads take the axis along which addresses count up, as many neighbouring elements each as one access may move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from weft.analysis.facts import Axis, Facts
from weft.analysis.facts.congruence import multiple_of
from weft.analysis.facts.words import ANYTHING
from weft.layout import WARP_SIZE, BlockedLayout
from weft.layout.distributed.by_strides import spread


@dataclass(frozen=True, slots=True)
class Access:
    """A tile of addresses: its shape, what is known about it, and the bytes of an element in memory."""

    shape: tuple[int, ...]
    facts: Facts
    itemsize: int

    @property
    def order(self) -> tuple[int, ...]:
        """Axes from the most contiguous one; of equal ones the last first."""
        return tuple(sorted(range(len(self.shape)), key=lambda axis: (-self.facts.contiguous[axis], -axis)))

    def width(self, threads: int, most_bytes: int) -> int:
        """Elements that one access of a thread can move: contiguous, aligned to their bytes, and not more than its share."""
        axis = self.order[0]
        aligned = self.facts.divisible[axis] // self.itemsize
        share = prod(self.shape) // threads
        return max(min(self.facts.contiguous[axis], aligned, share, most_bytes // self.itemsize), 1)


def row_major(shape: tuple[int, ...], itemsize: int) -> Access:
    """Addresses of a tile that lies in memory as it is written: aligned, contiguous along the last axis."""
    row = multiple_of(itemsize * shape[-1])
    axes = (*(Axis(start=row),) * (len(shape) - 1), Axis(shape[-1], start=row))
    return Access(shape, Facts(ANYTHING, axes, itemsize), itemsize)


def coalesced(accesses: Sequence[Access], num_warps: int, most_bytes: int, num_ctas: int = 1) -> BlockedLayout:
    """The layout for tiles of these accesses; the largest and then the widest one decides.

    `most_bytes` is what one thread's access moves at most. The blocks of a cluster split the slowest axes.
    """
    threads = WARP_SIZE * num_warps
    best = max(accesses, key=lambda access: (prod(access.shape), access.width(threads, most_bytes)))
    order = best.order
    made = spread(best.shape, order, best.width(threads, most_bytes), num_warps)
    shares = zip(made.size_per_thread, made.threads_per_warp, made.warps_per_cta, strict=True)
    left = [max(size // prod(own), 1) for size, own in zip(best.shape, shares, strict=True)]
    return replace(made, cga_layout=_blocks(num_ctas, left, order))


def _blocks(count: int, sizes: Sequence[int], order: Sequence[int]) -> list[list[int]]:
    """A vector for each bit of a block's index: along the slowest axis that is not split to its end, else of zeros."""
    vectors: list[list[int]] = []
    parts = [1] * len(sizes)
    for _ in range(count.bit_length() - 1):
        axis = next((axis for axis in reversed(order) if parts[axis] < sizes[axis]), None)
        vectors.append([parts[d] if d == axis else 0 for d in range(len(sizes))])
        if axis is not None:
            parts[axis] *= 2
    return vectors
