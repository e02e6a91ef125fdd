"""Hints: what the author asserts about values. The compiler assumes it, and the simulator checks it."""

from __future__ import annotations

from typing import Literal

from weft.ir.core import Effect, Value
from weft.ir.define import op
from weft.ir.types import Type
from weft.ops.check import scalar


@op("hints.axes", elementwise=True)
def axes(
    x: Value, divisible: tuple[int, ...] = (), contiguous: tuple[int, ...] = (), constant: tuple[int, ...] = ()
) -> Type:
    """The same value with the author's hints per axis: values are multiples of `divisible`, runs of `contiguous` elements
    increase by one, runs of `constant` elements are equal. A scalar has one axis. The simulator checks hints."""
    return x.type


@op("hints.assume", effects=(Effect("read", "io"),))
def assume(condition: Value) -> None:
    """The author's assumption that a scalar condition holds; the simulator checks it."""
    scalar(condition)


@op("hints.uniform", elementwise=True)
def uniform(x: Value, scope: Literal["block", "warp"] = "block") -> Type:
    """The same scalar, which the author asserts to be uniform across the block or each warp; the simulator checks it."""
    return x.type
