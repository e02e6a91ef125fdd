"""The layout in which the memory accesses of a tile of addresses are vectorized and coalesced.

    512 float32 at x + arange, 4 warps    -->    BlockedLayout([4], [32], [4], [0])       16 bytes a thread, 512 a warp

Consecutive threads are placed along the axis on which the addresses are contiguous. Each thread gets as many neighbouring
elements as one vector access can move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from weft.analysis.facts import Axis, Facts
from weft.analysis.facts.congruence import multiple_of, power_of_two_part
from weft.analysis.facts.words import ANYTHING
from weft.layout import WARP_SIZE, BlockedLayout
from weft.layout.distributed.by_strides import spread


@dataclass(frozen=True, slots=True)
class AddressTile:
    """A tile of addresses: its shape, its value facts, and the bytes of an element in memory."""

    shape: tuple[int, ...]
    facts: Facts
    itemsize: int

    @property
    def order(self) -> tuple[int, ...]:
        """The axes from the most contiguous to the least; equal ones from the last."""
        return tuple(sorted(range(len(self.shape)), key=lambda axis: (-self.facts.contiguous[axis], -axis)))

    def width(self, threads: int, most_bytes: int) -> int:
        """The vector width in elements: they are contiguous and aligned, and the tile has enough for all threads."""
        axis = self.order[0]
        aligned = self.facts.divisible[axis] // self.itemsize
        share = 1 << (prod(self.shape) // threads).bit_length() >> 1
        run = power_of_two_part(self.facts.contiguous[axis])
        return max(min(run, aligned, share, most_bytes // self.itemsize), 1)


def row_major(shape: tuple[int, ...], itemsize: int) -> AddressTile:
    """The addresses of a tile in row-major memory: aligned, and contiguous along the last axis."""
    row = multiple_of(itemsize * shape[-1])
    axes = (*(Axis(start=row),) * (len(shape) - 1), Axis(shape[-1], start=row))
    return AddressTile(shape, Facts(ANYTHING, axes, itemsize), itemsize)


def coalesced(accesses: Sequence[AddressTile], num_warps: int, most_bytes: int, num_ctas: int = 1) -> BlockedLayout:
    """The layout for tiles of these accesses; the access with the largest tile, then with the widest vectors, decides.

    `most_bytes` is the limit of a thread's vector access. The blocks of a cluster split the least contiguous axes.
    """
    threads = WARP_SIZE * num_warps
    best = max(accesses, key=lambda access: (prod(access.shape), access.width(threads, most_bytes)))
    order = best.order
    made = spread(best.shape, order, best.width(threads, most_bytes), num_warps)
    shares = zip(made.size_per_thread, made.threads_per_warp, made.warps_per_cta, strict=True)
    left = [max(size // prod(own), 1) for size, own in zip(best.shape, shares, strict=True)]
    return replace(made, cga_layout=_blocks(num_ctas, left, order))


def _blocks(count: int, sizes: Sequence[int], order: Sequence[int]) -> list[list[int]]:
    """A basis vector for each bit of the cluster rank: along the slowest axis that can still be split, else zeros."""
    vectors: list[list[int]] = []
    parts = [1] * len(sizes)
    for _ in range(count.bit_length() - 1):
        axis = next((axis for axis in reversed(order) if parts[axis] < sizes[axis]), None)
        vectors.append([parts[d] if d == axis else 0 for d in range(len(sizes))])
        if axis is not None:
            parts[axis] *= 2
    return vectors
