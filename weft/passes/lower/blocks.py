"""Predicates that select one block of a cluster for operations that a program executes once (`weft.analysis.apart`).

    tma.store %desc, %t    -->    control.if (rank & 2 == 0) { tma.store ... }      blocks 0 and 2 hold the same data

A program of one block needs no predicate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weft.ir.core import Op, Value
from weft.ir.types import int32
from weft.layout import LinearLayout
from weft.layout.cluster import copies
from weft.ops import arith, control
from weft.passes.lower.state import Lowering


def in_first(lo: Lowering, bits: int = -1, chosen: int = 0) -> Value | None:
    """The predicate of blocks whose cluster rank has all of these bits clear, or None if that is every block. The default -1
    selects rank 0.

    `chosen` is the value of the bits to select instead of 0."""
    mask = bits & lo.num_ctas - 1
    if not mask:
        return None
    with lo.at_entry():
        number = lo.rank()
        if mask != lo.num_ctas - 1:
            number = lo.emit(arith.and_, number, lo.constant(mask, int32))
        return lo.emit(arith.cmp, number, lo.constant(chosen, int32), predicate="eq")


def acting(lo: Lowering, bits: int = -1) -> Value | None:
    """`in_first` for what one block does for all whose rank differs in these bits: None if each block does it for itself."""
    return None if lo.acts_alone else in_first(lo, bits)


def sending(lo: Lowering, op: Op, sharing: int) -> Value | None:
    """The predicate of the block that sends to all whose rank differs in the bits `sharing`: the operation's `sender`, or each
    block that reaches it under a condition that differs between them."""
    sender = int(op.attrs.get("sender", 0))
    return None if op in lo.apart.under and not sender else in_first(lo, sharing, sender)


def both(lo: Lowering, first: Value | None, second: Value | None) -> Value | None:
    """The conjunction of two predicates that are computed at the entry. None is true."""
    if first is None or second is None:
        return second if first is None else first
    with lo.at_entry():
        return lo.emit(arith.and_, first, second)


def owns_first(lo: Lowering, linear: LinearLayout) -> Value | None:
    """The predicate that selects one thread of all blocks for each element of a tile, or None if every thread is selected."""
    return both(lo, lo.owns(linear), acting(lo, copies(linear, lo.num_ctas)))


@contextmanager
def where(lo: Lowering, condition: Value | None) -> Iterator[None]:
    """Emit the operations of the `with` block under a scalar predicate; None is true. They yield no results."""
    if condition is None:
        yield
        return
    with lo.nested(()) as then:
        yield
        lo.emit(control.yield_)
    with lo.nested(()) as orelse:
        lo.emit(control.yield_)
    lo.emit(control.if_, condition, regions=(then.done, orelse.done))
