"""Lowered stage: shared memory that the compiler takes for conversions, reductions and the like.

`allocate_scratch` sets each allocation's byte offset by liveness, `insert_sync` then places barriers on the physical ranges.
Access `i` goes to element `base ^ offsets[i]`, where `base` is each thread's own.
"""

from __future__ import annotations

from weft.ir.core import Value
from weft.ir.define import op, reads, writes
from weft.ir.types import DType, RegsType, ScratchType, Type
from weft.ops.check import TypingError, boolean, integer, regs, require, scalar
from weft.ops.regs import Table


def _scratch(value: Value) -> ScratchType:
    if not isinstance(value.type, ScratchType):
        raise TypingError(f"scratch memory is needed: {value.type}")
    return value.type


@op("scratch.alloc", stage="lowered")
def alloc(dtype: DType, count: int, tag: int, offset: int = -1) -> Type:
    """`count` elements of shared memory. `tag` keeps allocations apart, so that they are never merged; `offset` (in bytes) is
    set by `allocate_scratch`."""
    require(count > 0, "an allocation has elements")
    return ScratchType(dtype, count)


@op("scratch.store", effects=(writes("scratch", "shared"),), stage="lowered")
def store(
    scratch: Value,
    base: Value,
    value: Value,
    mask: Value | None,
    offsets: Table,
    registers: tuple[Table, ...],
    vec: int,
) -> None:
    """Write registers; access `i` writes the `vec` registers `registers[i]` to consecutive elements. `mask` is a scalar."""
    t = _scratch(scratch)
    scalar(base)
    boolean(mask)
    require(regs(value).element == t.element, "{} into {}", value.type, t)
    require(len(offsets) == len(registers) and all(len(group) == vec for group in registers), "an offset per access")


@op("scratch.load", effects=(reads("scratch", "shared"),), stage="lowered", scope="thread")
def load(scratch: Value, base: Value, offsets: Table, registers: tuple[Table, ...], vec: int) -> Type:
    """Read registers; `registers` names each register of the result once."""
    t = _scratch(scratch)
    scalar(base)
    count = sum(map(len, registers))
    require(sorted(r for group in registers for r in group) == list(range(count)), "each register is read once")
    require(len(offsets) == len(registers) and all(len(group) == vec for group in registers), "an offset per access")
    return RegsType(t.element, count)


@op("scratch.load_at", effects=(reads("scratch", "shared"),), stage="lowered", scope="thread")
def load_at(scratch: Value, index: Value) -> Type:
    """Read element `index[i]` into register `i`."""
    integer(index)
    return RegsType(_scratch(scratch).element, regs(index).count)


@op("scratch.add_at", effects=(reads("scratch", "shared"), writes("scratch", "shared")), stage="lowered")
def add_at(scratch: Value, index: Value, value: Value, mask: Value | None) -> None:
    """Add `value[i]` to element `index[i]`, atomically among the block's threads, where `mask[i]` holds. int32 only."""
    integer(index)
    boolean(mask)
    require(regs(index).count == regs(value).count, "an index per value")
    require(_scratch(scratch).element.code == "i32", "add_at counts in int32")
