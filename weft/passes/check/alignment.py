"""Reject vector accesses that are certainly misaligned.

    memory.load_regs %x {vec=4}    -->    error thread-misaligned       (float32 argument %x is a multiple of 4 bytes only)

A vector access must be aligned to its size. By writing one the author asserts that it is; this check rejects it if the offsets
are multiples of the size and the pointer argument is not. The launch tells only whether arguments are multiples of 16 bytes, so
accesses below 16 bytes are not checked.
"""

from __future__ import annotations

from weft.analysis.facts import ValueFacts, facts
from weft.analysis.facts.congruence import power_of_two_part
from weft.errors import compiler as errors
from weft.errors import fail
from weft.ir.core import Func, Op, Value, walk
from weft.ops import async_copy, memory
from weft.ops.check import pointer_of

ALIGNMENT = 16
ACCESSES = (memory.load_regs, memory.store_regs, async_copy.copy)


def check_alignment(func: Func) -> Func:
    """Check a function in tile IR. Raises CompilationError (thread-misaligned)."""
    wide = [op for op in walk(func.body) if op.kind in ACCESSES and op.attrs["vec"] > 1]
    given = dict(zip(func.params, func.attrs.params, strict=True)) if wide else {}
    unaligned = {param for param, facts in given.items() if 1 < facts.divisible < ALIGNMENT}
    if unaligned:
        known = facts(func)
        made = {op.result: op for op in walk(func.body) if op.kind is memory.addptr}
        for op in wide:
            _check(op, unaligned, known, made)
    return func


def _check(op: Op, unaligned: set[Value], known: ValueFacts, made: dict[Value, Op]) -> None:
    ptr = op.operand("ptr")
    assert ptr is not None
    dtype = pointer_of(ptr).element_ty
    width: int = op.attrs["vec"] * dtype.itemsize
    added = _divisor(op, known) * dtype.itemsize
    while ptr in made:
        ptr, offset = made[ptr].uses
        added = min(added, known[offset].every * dtype.itemsize)
    if ptr in unaligned and ALIGNMENT <= width <= added:
        aligned = known[ptr].every
        raise fail(
            errors.THREAD_MISALIGNED, loc=op.loc, count=op.attrs["vec"], dtype=dtype.name, width=width,
            name=ptr.name, known=aligned, fits=max(aligned // dtype.itemsize, 1),
        )  # fmt: skip


def _divisor(op: Op, known: ValueFacts) -> int:
    """The largest power of two known to divide the offsets that an access adds to its pointer, in elements."""
    constants, *tables = op.attrs["offsets"]
    strides = op.operands[len(op.kind.operands) :]
    found = [power_of_two_part(entry) for entry in constants]
    for stride, table in zip(strides, tables, strict=True):
        assert stride is not None
        found += [known[stride].every * power_of_two_part(factor) for factor in table]
    return min(found)
