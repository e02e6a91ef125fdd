"""Layouts chosen for coalesced access: neighbouring threads access neighbouring addresses, in wide accesses."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from weft.layout.base import WARP_SIZE
from weft.layout.distributed.layouts import BlockedLayout, DistributedLayout, DistributedLinearLayout
from weft.layout.linear.ends import piece_shape
from weft.layout.linear.f2 import log2

Mode = tuple[int, int | None]
"""Size and stride of one mode of an axis, in elements; the stride is None if it is known at run time only."""


def spread(shape: Sequence[int], order: Sequence[int], width: int, num_warps: int) -> BlockedLayout:
    """The layout in which threads hold `width` elements each; lanes, then warps cover the axes in this order.

    Each axis is covered completely before the next; threads left over repeat elements along the last axis of the order. Of
    other sizes than powers of two, threads cover the largest one that divides them.

    >>> spread((128, 64), (1, 0), 4, 4)
    BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    """
    left = list(piece_shape(shape))
    levels: list[list[int]] = []
    for count, repeats in ((width, False), (WARP_SIZE, True), (num_warps, True)):
        shares = [1] * len(left)
        for axis in order:
            shares[axis] = min(count, left[axis])
            count //= shares[axis]
        if repeats:
            shares[order[-1]] *= count
        levels.append(shares)
        left = [max(size // share, 1) for size, share in zip(left, shares, strict=True)]
    size_per_thread, lanes, warps = levels
    return BlockedLayout(size_per_thread, lanes, warps, order)


def by_strides(
    axes: Sequence[Sequence[Mode]], itemsize: int, num_warps: int, most_bytes: int = 16
) -> DistributedLayout:
    """The layout of a tile whose axes have these modes, fastest first; sizes are powers of two.

    Elements go to registers (as many as one access of `most_bytes` moves), lanes and warps in the order of their addresses. A
    `BlockedLayout` where each axis has one mode; the tiles of a nested layout need a linear one.

    >>> by_strides([[(128, 1)], [(64, 128)]], 4, 4)
    BlockedLayout([4, 1], [32, 1], [1, 4], [0, 1])
    >>> by_strides([[(8, 8), (2, 64)], [(8, 1), (2, 128)]], 4, 1)
    DistributedLinearLayout(reg_bases=[[0, 1], [0, 2], [0, 8]], lane_bases=[[0, 4], [1, 0], [2, 0], [4, 0], [8, 0]], \
warp_bases=[], block_bases=[], shape=[16, 16])
    """
    shape = [prod(size for size, _ in modes) for modes in axes]
    steps = _in_order(axes)
    width = min(_contiguous(steps), max(prod(shape) // (WARP_SIZE * num_warps), 1), max(most_bytes // itemsize, 1))
    if all(len(modes) <= 1 for modes in axes):
        order = list(dict.fromkeys([*(axis for axis, _, _, _ in steps), *reversed(range(len(axes)))]))
        return spread(shape, order, width, num_warps)
    bases = [
        [before << bit if each == axis else 0 for each in range(len(axes))]
        for axis, before, size, _ in steps
        for bit in range(log2(size))
    ]
    registers, threads = bases[: log2(width)], bases[log2(width) :]
    lanes, warps = log2(WARP_SIZE), log2(num_warps)
    threads += [[0] * len(axes)] * (lanes + warps - len(threads))
    registers += threads[lanes + warps :]
    return DistributedLinearLayout(registers, threads[:lanes], threads[lanes : lanes + warps], [], shape)


def _in_order(axes: Sequence[Sequence[Mode]]) -> list[tuple[int, int, int, int | None]]:
    """Modes as (axis, elements of the axis before it, size, stride): the least stride first, unknown and zero ones last."""
    steps: list[tuple[int, int, int, int | None]] = []
    for axis, modes in enumerate(axes):
        before = 1
        for size, stride in modes:
            if size > 1:
                steps.append((axis, before, size, stride))
            before *= size
    return sorted(steps, key=lambda step: (not step[3], abs(step[3] or 0), -step[0]))


def _contiguous(steps: Sequence[tuple[int, int, int, int | None]]) -> int:
    """The length of the run of elements that count up one by one."""
    run = 1
    for _, _, size, stride in steps:
        if stride != run:
            break
        run *= size
    return run
