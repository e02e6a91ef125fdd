"""Say which sums, differences and products never wrap, so that C may compute them as they stand.

    %i = arith.add %first, %thread        exact = {%i = "range", %at = "address"}
    %m = arith.mul %row, %stride     -->
    %at = arith.add %m, %i
    %p = memory.addptr %x, %at

Some are known to stay in their type (`weft.analysis.facts`). And a signed one that nothing but addresses is made of is taken as
if it never wrapped: what it would address is out of bounds, which the simulator reports. The C compiler then folds constants
into the instructions that access memory. Only in functions of single threads (with the attribute "block"), whose indices are
scalars.
"""

from __future__ import annotations

from weft.analysis.facts import facts
from weft.ir.core import Func, Op, Value, walk
from weft.ir.types import DType
from weft.ops import arith, async_copy, memory, thread

SUMS = (arith.add, arith.sub, arith.mul)
SHARED = (thread.load_shared, thread.store_shared, thread.atomic_shared)
STRIDED = (memory.load_regs, memory.store_regs, async_copy.copy)


def mark_exact(func: Func) -> Func:
    """The function with "exact": "range" or "address" for each value that such an operation computes."""
    if func.attrs.block is None:
        return func
    known, addresses = facts(func), only_addresses(func)
    exact: dict[Value, str] = {}
    for op in walk(func.body):
        if op.kind in SUMS:
            if known.exact(op):
                exact[op.result] = "range"
            elif op.result in addresses and _is_signed(op.result):
                exact[op.result] = "address"
    return func.with_attrs(exact=exact)


def _is_signed(value: Value) -> bool:
    element = value.type.element
    return isinstance(element, DType) and element.is_int_signed() and element.bits >= 32


def only_addresses(func: Func) -> set[Value]:
    """Values that are used for addresses only."""
    others: set[Value] = set()
    found: set[Value] = set()
    # Backwards, so that what is made of a value comes before the value.
    for op in reversed(list(walk(func.body))):
        for result in op.results:
            if result not in others:
                found.add(result)
        for position, value in enumerate(op.operands):
            if value is not None and not _addressing(op, position, found):
                others.add(value)
    return found


def _addressing(op: Op, position: int, addresses: set[Value]) -> bool:
    """Whether an operand says where in memory, and nothing else."""
    if op.kind in SUMS:
        return op.result in addresses
    if op.kind is arith.cast:
        # A narrower or unsigned type is there for what is left of a number that wraps: the simulator does not report that.
        target, source = op.attrs["dtype"], next(op.uses).type.element
        return op.result in addresses and target.is_int_signed() and target.bits >= source.bits
    if op.kind is memory.addptr or op.kind in SHARED:
        return position == 1
    if op.kind is async_copy.copy and position == op.kind.operand_index["base"]:
        return True
    return op.kind in STRIDED and position >= len(op.kind.operands)
