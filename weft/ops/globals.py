"""Global memory, one instruction shape per operation: of the lowered stage, and of threads that compute by themselves.

Access `i` of `n` goes to address `ptr + offsets[0][i] + strides[0] * offsets[1][i] + ...` in elements, where `ptr` is one
address per thread (a scalar) or one per access (an array of n). It moves `registers[i]`, a tuple of `vec` register numbers,
in one instruction.
"""

from __future__ import annotations

from weft.ir.core import Value
from weft.ir.define import op, reads, writes
from weft.ir.types import RegsType, Type
from weft.ops.check import boolean, pointer_of, regs, require
from weft.ops.memory import Atomic, Cache, Eviction, LoadOrder, MemoryOrder, MemoryScope, StoreOrder
from weft.ops.regs import Table


def _accesses(
    ptr: Value,
    mask: Value | None,
    strides: tuple[Value, ...],
    offsets: tuple[Table, ...],
    registers: tuple[Table, ...],
    vec: int,
) -> None:
    n = len(registers)
    require(
        len(offsets) == len(strides) + 1 and all(len(table) == n for table in offsets),
        "one table of n, and one per stride",
    )
    require(not isinstance(ptr.type, RegsType) or ptr.type.count == n, "one address per access")
    require(all(len(group) == vec for group in registers), "vec registers per access")
    require(vec * pointer_of(ptr).element_ty.itemsize in (1, 2, 4, 8, 16, 32), "no such access width")
    boolean(mask)
    require(mask is None or not isinstance(mask.type, RegsType) or mask.type.count == n, "one predicate per access")


@op("global.load", effects=(reads("ptr"),), scope="thread")
def load(
    ptr: Value, mask: Value | None, other: Value | None, *strides: Value,
    offsets: tuple[Table, ...], registers: tuple[Table, ...], vec: int, count: int,
    cache: Cache = "", eviction: Eviction = "", volatile: bool = False, order: LoadOrder = "", scope: MemoryScope = "gpu",
) -> Type:  # fmt: skip
    """Read `count` registers. `mask` is one predicate per access, or one for all; `other` is an array of `count` or absent."""
    _accesses(ptr, mask, strides, offsets, registers, vec)
    require(not order or vec == 1, "an ordered access moves one element")
    require(sorted(r for group in registers for r in group) == list(range(count)), "each register is read once")
    require(other is None or regs(other).count == count, "`other` has a value per register")
    return RegsType(pointer_of(ptr).element_ty, count)


@op("global.store", effects=(writes("ptr"),))
def store(
    ptr: Value, value: Value, mask: Value | None, *strides: Value,
    offsets: tuple[Table, ...], registers: tuple[Table, ...], vec: int,
    cache: Cache = "", eviction: Eviction = "", order: StoreOrder = "", scope: MemoryScope = "gpu",
) -> None:  # fmt: skip
    """Write registers; those that no access names are not written."""
    _accesses(ptr, mask, strides, offsets, registers, vec)
    require(not order or vec == 1, "an ordered access moves one element")
    require(regs(value).element == pointer_of(ptr).element_ty, "stored through a pointer to another type")


@op("global.atomic", effects=(reads("ptr"), writes("ptr")), scope="thread")
def atomic(ptr: Value, value: Value, mask: Value | None, kind: Atomic, order: MemoryOrder, scope: MemoryScope) -> Type:
    """Read-modify-write, register by register: `ptr`, `value` and `mask` are arrays of one length."""
    boolean(mask)
    require(regs(ptr).count == regs(value).count, "one address per value")
    return value.type


@op("global.atomic_cas", effects=(reads("ptr"), writes("ptr")), scope="thread")
def atomic_cas(
    ptr: Value, compare: Value, value: Value, mask: Value | None, order: MemoryOrder, scope: MemoryScope
) -> Type:
    """Compare-and-swap, register by register."""
    boolean(mask)
    require(regs(ptr).count == regs(value).count == regs(compare).count, "one address per value")
    return value.type
