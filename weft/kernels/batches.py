"""Batches of products: the leading axes of a, b and output, broadcast against one another and merged into one axis.

Products of a batch have the same shape and lie at equal steps in memory, so that one launch computes them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.operands import Matrix, span_of, stack

Axes = tuple[tuple[int, int], ...]
"""Extents and strides (in elements) of batch axes."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The operands and the output (None if it is not given) of the products of one launch, the shape of the whole output, and
    the byte ranges of a, b and out relative to their addresses.

    With `apart`, there is more than one launch: the axes lie so that no single step leads from each product to the next."""

    left: Matrix
    right: Matrix
    out: Matrix | None
    shape: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    apart: bool

    def folded(self) -> Batch:
        """The batch as one product, if all share b and the rows of a and output continue from each product to the next."""
        (m, _), b = self.left.shape, self.right
        rows = [x for x in (self.left, self.out) if x is not None]
        if self.apart or self.left.batches == 1 or b.batches > 1 or any(x.step != m * x.strides[0] for x in rows):
            return self
        left, *out = (replace(x, shape=(m * x.batches, x.shape[1]), batches=1, step=0) for x in rows)
        return replace(self, left=left, out=out[0] if out else None)


def batch_of(a: Any, b: Any, out: Any, gated: bool = False) -> Batch:
    """The batch of arrays a [.., M, K], b [.., K, N] and out [.., M, N]; of a gated product b is a pair of arrays.

    Raises LaunchError: kernels-array, kernels-batch, kernels-gated, kernels-out-shape, kernels-out-repeats."""
    left, left_axes = stack("a", a)
    right, right_axes = joined(*b) if gated else stack("b", b)
    target, out_axes = (None, ()) if out is None else stack("out", out)
    spans = [
        span_of(
            (*(n for n, _ in axes), *x.shape), (*(step for _, step in axes), *x.strides), x.itemsize
        )
        for x, axes in ((left, left_axes), (right, right_axes), (target, out_axes))
        if x is not None
    ]  # fmt: skip
    axes = broadcast([extent for extent, _ in left_axes], [extent for extent, _ in right_axes])
    if target is not None:
        _check_out(target, out_axes, axes, left, right, [n for n, _ in left_axes], [n for n, _ in right_axes])
    else:
        out_axes = _contiguous(axes, left.shape[0] * right.shape[1])
    merged = _merged(axes, [_steps(x, len(axes)) for x in (left_axes, right_axes, out_axes)])
    extent, (first, second, third) = merged[-1] if merged else (1, (0, 0, 0))
    left = replace(left, batches=extent if first else 1, step=first)
    right = replace(right, batches=extent if second else 1, step=second)
    target = None if target is None else replace(target, batches=extent, step=third)
    shape = *axes, left.shape[0], right.shape[1]
    return Batch(left, right, target, shape, tuple(spans), len(merged) > 1)


def joined(one: Any, other: Any) -> tuple[Matrix, Axes]:
    """What both operands b of a gated product are alike in, with the alignment of both. Raises LaunchError (kernels-gated)."""
    (first, axes), (second, others) = stack("b", one), stack("b", other)
    if (first.dtype, first.shape, first.strides, axes) != (second.dtype, second.shape, second.strides, others):
        forms = (
            (x.dtype, [*(n for n, _ in outer), *x.shape], [*(n for _, n in outer), *x.strides])
            for x, outer in ((first, axes), (second, others))
        )
        raise fail(
            errors.GATED, got=" and ".join(f"{dtype} {shape} with strides {steps}" for dtype, shape, steps in forms)
        )
    return replace(first, pointer=first.pointer | second.pointer), axes


def part_of(value: Any, index: int, axes: int) -> Any:
    """Of an array with up to `axes` batch axes, or of each of two, what the first of them has at an index."""
    if isinstance(value, tuple):
        return tuple(part_of(each, index, axes) for each in cast("tuple[Any, ...]", value))
    if len(value.shape) < axes + 2:
        return value
    return value[index if value.shape[0] > 1 else 0]


def broadcast(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    """Extents of all batch axes of a and b, counted from the last. Raises LaunchError (kernels-batch)."""
    found: list[int] = []
    for place in range(1, max(len(left), len(right)) + 1):
        one, other = (axes[-place] if place <= len(axes) else 1 for axes in (left, right))
        if one != other and 1 not in (one, other):
            raise fail(errors.BATCH, a=list(left), b=list(right), axis=-place - 2, first=one, second=other)
        found.append(other if one == 1 else one)
    return tuple(reversed(found))


def _steps(axes: Axes, count: int) -> list[int]:
    """Steps along each of `count` axes: 0 where an array repeats."""
    return [0] * (count - len(axes)) + [0 if extent == 1 else step for extent, step in axes]


def _contiguous(axes: tuple[int, ...], size: int) -> Axes:
    return tuple((extent, size * prod(axes[place + 1 :])) for place, extent in enumerate(axes))


def _merged(axes: tuple[int, ...], steps: list[list[int]]) -> list[tuple[int, tuple[int, ...]]]:
    """Axes of more than one element and the steps of each array, two made one where each array goes on at the same step."""
    found: list[tuple[int, tuple[int, ...]]] = []
    for extent, *each in zip(axes, *steps, strict=True):
        if extent == 1:
            continue
        if found and all(outer == extent * inner for outer, inner in zip(found[-1][1], each, strict=True)):
            extent *= found.pop()[0]
        found.append((extent, tuple(each)))
    return found


def _check_out(
    out: Matrix, axes: Axes, wanted: tuple[int, ...], left: Matrix, right: Matrix, a: list[int], b: list[int]
) -> None:
    """Raises LaunchError: kernels-out-shape, kernels-out-repeats."""
    got, want = [*(n for n, _ in axes), *out.shape], [*wanted, left.shape[0], right.shape[1]]
    if got != want:
        raise fail(errors.OUT_SHAPE, got=got, a=[*a, *left.shape], b=[*b, *right.shape], want=want)
    if axes and _repeats([*axes, *zip(out.shape, out.strides, strict=True)]):
        strides = [*(step for _, step in axes), *out.strides]
        raise fail(errors.OUT_REPEATS, shape=got, strides=strides)


def _repeats(axes: Sequence[tuple[int, int]]) -> bool:
    """Whether elements may be the same memory: some step is no longer than what lies within it."""
    reach = 0
    for extent, step in sorted(axes, key=lambda axis: abs(axis[1])):
        if extent > 1:
            if abs(step) <= reach:
                return True
            reach += (extent - 1) * abs(step)
    return False
