"""Mark sums, differences and products that need not wrap, so that CUDA text computes them in plain signed arithmetic.

    %i = arith.add %first, %thread        exact = {%i = "range", %at = "address"}
    %m = arith.mul %row, %stride     -->
    %at = arith.add %m, %i
    %p = memory.addptr %x, %at

"range": the result is known to stay in its type (`weft.analysis.facts`). "address": a signed result is used for addresses only.
It is assumed not to overflow, as the address would then be out of bounds, which the simulator reports. Signed overflow is
undefined in C, so the compiler can fold constants into the immediate offsets of memory instructions. Only thread-level kernels
(with the attribute "block") are marked, since their indices are scalars.
"""

from __future__ import annotations

from weft.analysis.facts import facts
from weft.ir.core import Func, Op, Value, walk
from weft.ir.types import DType
from weft.ops import arith, async_copy, memory, thread

SUMS = (arith.add, arith.sub, arith.mul)
SHARED = (thread.load_shared, thread.store_shared, thread.atomic_shared)
STRIDED = (memory.load_regs, memory.load_part, memory.store_regs, memory.store_part, async_copy.copy)


def mark_exact(func: Func) -> Func:
    """The function with "exact": "range" or "address" for each result that need not wrap."""
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
    """The values that are used for addresses only."""
    others: set[Value] = set()
    found: set[Value] = set()
    # Backward, so that the uses of a value are visited before its definition.
    for op in reversed(walk(func.body)):
        for result in op.results:
            if result not in others:
                found.add(result)
        for position, value in enumerate(op.operands):
            if value is not None and not _addressing(op, position, found):
                others.add(value)
    return found


def _addressing(op: Op, position: int, addresses: set[Value]) -> bool:
    """Whether an operand is used as part of an address only."""
    if op.kind in SUMS:
        return op.result in addresses
    if op.kind is arith.cast:
        # A cast to a narrower or unsigned type may be meant to wrap, which the simulator does not report.
        target, source = op.attrs["dtype"], op.uses[0].type.element
        return op.result in addresses and target.is_int_signed() and target.bits >= source.bits
    if op.kind is memory.addptr or op.kind in SHARED:
        return position == 1
    if op.kind is async_copy.copy and position == op.kind.operand_index["base"]:
        return True
    return op.kind in STRIDED and position >= len(op.kind.operands)
