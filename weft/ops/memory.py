"""Addresses, global memory and atomics on scalars and tiles. Tile forms become `global.*` operations in `lower_tiles`."""

from __future__ import annotations

from typing import Literal

from weft.ir.core import Value
from weft.ir.define import op, reads, writes
from weft.ir.types import Type, with_element
from weft.ops.check import boolean, dtype_of, integer, pointer_of, require, same_form
from weft.ops.tile import LOWER

Cache = Literal["", ".ca", ".cg", ".cv", ".wb", ".cs", ".wt"]
Eviction = Literal["", "evict_first", "evict_last"]
Atomic = Literal["add", "max", "min", "and", "or", "xor", "xchg"]
MemoryOrder = Literal["relaxed", "acquire", "release", "acq_rel"]
LoadOrder = Literal["", "relaxed", "acquire"]
StoreOrder = Literal["", "relaxed", "release"]
"""How a load or store is ordered: not at all, as one of its own (relaxed), or with the accesses after it or before it."""
MemoryScope = Literal["cta", "cluster", "gpu", "sys"]
"""Among whose threads: those of the block, of its cluster, of the GPU, or of the GPU, others and the host."""


@op("memory.addptr")
def addptr(ptr: Value, offset: Value) -> Type:
    """Address `offset` elements (not bytes) further on."""
    pointer_of(ptr)
    integer(offset)
    same_form(ptr, offset)
    return ptr.type


@op("memory.load", effects=(reads("ptr"),), stage="tile", removed_by=LOWER)
def load(
    ptr: Value, mask: Value | None, other: Value | None,
    cache: Cache = "", eviction: Eviction = "", volatile: bool = False, order: LoadOrder = "", scope: MemoryScope = "gpu",
) -> Type:  # fmt: skip
    """Read the elements at `ptr` where `mask` holds; elsewhere `other`, or an undefined value without it.

    With an `order` it is a strong access, which each element gets once: the threads that hold it agree on its value."""
    require(not (order and volatile), "a volatile load is relaxed, and has no other order")
    element = pointer_of(ptr).element_ty
    boolean(mask)
    same_form(ptr, mask, other)
    require(other is None or (mask is not None and other.type.element == element), "`other` needs a mask and its type")
    return with_element(ptr.type, element)


@op("memory.store", effects=(writes("ptr"),), stage="tile", removed_by=LOWER)
def store(
    ptr: Value, value: Value, mask: Value | None,
    cache: Cache = "", eviction: Eviction = "", order: StoreOrder = "", scope: MemoryScope = "gpu",
) -> None:  # fmt: skip
    """Write `value` to `ptr` where `mask` holds. Elements that several threads hold are written once."""
    require(pointer_of(ptr).element_ty == value.type.element, "{} stored through {}", value.type, ptr.type)
    boolean(mask)
    same_form(ptr, value, mask)


@op("memory.atomic", effects=(reads("ptr"), writes("ptr")), stage="tile", removed_by=LOWER)
def atomic(
    ptr: Value, value: Value, mask: Value | None,
    kind: Atomic, order: MemoryOrder = "acq_rel", scope: MemoryScope = "gpu",
) -> Type:  # fmt: skip
    """Combine `value` into memory at `ptr` in one step where `mask` holds, exactly once per element; the old values.

    An element that is masked off gives an undefined old value."""
    require(pointer_of(ptr).element_ty == value.type.element, "{} combined through {}", value.type, ptr.type)
    require(kind in ("add", "max", "min", "xchg") or dtype_of(value).is_int(), "atomic {} needs integers", kind)
    boolean(mask)
    same_form(ptr, value, mask)
    return value.type


@op("memory.atomic_cas", effects=(reads("ptr"), writes("ptr")), stage="tile", removed_by=LOWER)
def atomic_cas(
    ptr: Value, compare: Value, value: Value, order: MemoryOrder = "acq_rel", scope: MemoryScope = "gpu"
) -> Type:
    """Where memory at `ptr` equals `compare` (bitwise), replace it by `value`, in one step; the old values."""
    require(
        pointer_of(ptr).element_ty == value.type.element == compare.type.element, "types of compare-and-swap differ"
    )
    require(value.type.element.bits in (16, 32, 64), "compare-and-swap needs 16, 32 or 64 bits")
    same_form(ptr, compare, value)
    return value.type
