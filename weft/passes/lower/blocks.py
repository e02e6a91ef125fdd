"""What happens once in a program of several blocks: which block does it. Programs of one block need no such test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weft.ir.core import Value
from weft.ir.types import int32
from weft.layout import LinearLayout
from weft.layout.cluster import copies
from weft.ops import arith, control
from weft.passes.lower.state import Lowering


def in_first(lo: Lowering, bits: int = -1, chosen: int = 0) -> Value | None:
    """The predicate of blocks in whose numbers these bits are clear (all of them: the first block); None when all are.

    Of the numbers that the bits tell apart another than 0 may be `chosen`."""
    mask = bits & lo.num_ctas - 1
    if not mask:
        return None
    with lo.at_entry():
        number = lo.rank()
        if mask != lo.num_ctas - 1:
            number = lo.emit(arith.and_, number, lo.constant(mask, int32))
        return lo.emit(arith.cmp, number, lo.constant(chosen, int32), predicate="eq")


def both(lo: Lowering, first: Value | None, second: Value | None) -> Value | None:
    """The predicate that two predicates of the entry hold, None being always."""
    if first is None or second is None:
        return second if first is None else first
    with lo.at_entry():
        return lo.emit(arith.and_, first, second)


def owns_first(lo: Lowering, linear: LinearLayout) -> Value | None:
    """The predicate that picks one thread of the whole program for each element of a tile, or None when all own theirs."""
    return both(lo, lo.owns(linear), in_first(lo, copies(linear, lo.num_ctas)))


@contextmanager
def where(lo: Lowering, condition: Value | None) -> Iterator[None]:
    """What is emitted inside happens where a scalar predicate holds, None being always. It has no results."""
    if condition is None:
        yield
        return
    with lo.nested(()) as then:
        yield
        lo.emit(control.yield_)
    with lo.nested(()) as orelse:
        lo.emit(control.yield_)
    lo.emit(control.if_, condition, regions=(then.done, orelse.done))
