"""Addresses, global memory and atomics: on scalars and tiles, and, in lowered IR and thread-level code, on register arrays."""

from __future__ import annotations

from typing import Literal, get_args

from weft.ir.core import Attrs, Effect, Laws, Order, Value
from weft.ir.define import op, reads, writes
from weft.ir.types import RegsType, Type, int1, int32, int64, with_element
from weft.ops.check import boolean, dtype_of, integer, pointer_of, regs, require, same_form, scalar
from weft.ops.regs import Table
from weft.ops.tile import LOWER

Cache = Literal["", ".ca", ".cg", ".cv", ".wb", ".cs", ".wt"]
Eviction = Literal["", "evict_first", "evict_last", "evict_normal", "evict_unchanged", "no_allocate"]
"""The eviction priority of a cache line in L1."""
L2Primary = Literal["evict_first", "evict_last", "evict_normal", "evict_unchanged"]
L2Secondary = Literal["evict_unchanged", "evict_first"]
L2Policy = tuple[()] | tuple[L2Primary, float, L2Secondary]
"""Eviction priorities in L2: of a fraction of the lines, that fraction, and of the others; empty for the default."""
Atomic = Literal["add", "max", "min", "and", "or", "xor", "xchg"]
MemoryOrder = Literal["relaxed", "acquire", "release", "acq_rel"]
LoadOrder = Literal["", "relaxed", "acquire"]
StoreOrder = Literal["", "relaxed", "release"]
"""The memory order of a store: none (a weak access), relaxed, or release; loads have acquire instead."""
PollOrder = Literal["relaxed", "acquire"]
"""The memory order of a poll that has found the expected value."""
MemoryScope = Literal["cta", "cluster", "gpu", "sys"]
"""The scope of an order: the threads of the block, of its cluster, of the GPU, or of the system (other GPUs and the host)."""


Combine = Literal["", "add", "min", "max", "and", "or", "xor"]
"""How a load from a multicast address combines what the ranks have; empty for an ordinary load."""
_INTEGERS = ("int32", "uint32", "int64", "uint64")
_HALVES = ("float16", "bfloat16")
MULTIMEM: dict[str, tuple[str, ...]] = {
    "add": (*_HALVES, "float32", "float64", *_INTEGERS),
    **dict.fromkeys(("min", "max"), (*_HALVES, *_INTEGERS)),
    **dict.fromkeys(("and", "or", "xor"), _INTEGERS),
}
"""The types that multimem accesses combine (PTX ISA, multimem.ld_reduce)."""


@op("memory.addptr", elementwise=True, laws=Laws(neutral=0))
def addptr(ptr: Value, offset: Value) -> Type:
    """The address `offset` elements (not bytes) past `ptr`."""
    pointer_of(ptr)
    integer(offset)
    same_form(ptr, offset)
    return ptr.type


ORDERS: tuple[Order, ...] = get_args(Order)
READS = {order: (reads("ptr", order=order),) for order in ORDERS}
WRITES = {order: (writes("ptr", order=order),) for order in ORDERS}


def _loads(attrs: Attrs) -> tuple[Effect, ...]:
    """A volatile load is relaxed."""
    return READS[attrs["order"] or ("relaxed" if attrs["volatile"] else "")]


def _stores(attrs: Attrs) -> tuple[Effect, ...]:
    return WRITES[attrs["order"]]


def _updates(attrs: Attrs) -> tuple[Effect, ...]:
    return READS[attrs["order"]] + WRITES[attrs["order"]]


@op("memory.load", effects=_loads, stage="tile", removed_by=LOWER)
def load(
    ptr: Value, mask: Value | None, other: Value | None,
    cache: Cache = "", eviction: Eviction = "", l2: L2Policy = (), prefetch: int = 0, volatile: bool = False,
    order: LoadOrder = "", scope: MemoryScope = "gpu", multimem: Combine = "",
) -> Type:  # fmt: skip
    """Read the elements at `ptr` where `mask` holds; elsewhere `other`, or an undefined value without it. With `multimem`,
    `ptr` are multicast addresses, and what all ranks have there is combined.

    With an `order` it is a strong access that is executed once per element: all threads that hold it get the same value."""
    require(not (order and volatile), "a volatile load is relaxed, and has no other order")
    element = pointer_of(ptr).element_ty
    boolean(mask)
    same_form(ptr, mask, other)
    require(other is None or (mask is not None and other.type.element == element), "`other` needs a mask and its type")
    return with_element(ptr.type, element)


@op("memory.store", effects=_stores, stage="tile", removed_by=LOWER)
def store(
    ptr: Value, value: Value, mask: Value | None,
    cache: Cache = "", eviction: Eviction = "", l2: L2Policy = (), order: StoreOrder = "", scope: MemoryScope = "gpu",
    multimem: bool = False,
) -> None:  # fmt: skip
    """Write `value` to `ptr` where `mask` holds. Elements that several threads hold are written once. With `multimem`, `ptr`
    are multicast addresses: every rank is written."""
    require(pointer_of(ptr).element_ty == value.type.element, "{} stored through {}", value.type, ptr.type)
    boolean(mask)
    same_form(ptr, value, mask)


@op("memory.atomic", effects=_updates, stage="tile", removed_by=LOWER)
def atomic(
    ptr: Value, value: Value, mask: Value | None,
    kind: Atomic, order: MemoryOrder = "acq_rel", scope: MemoryScope = "gpu", multimem: bool = False,
) -> Type:  # fmt: skip
    """Combine `value` into memory at `ptr` atomically where `mask` holds, exactly once per element; returns the old values.

    The old value of an element that is masked off is undefined. With `multimem`, `ptr` are multicast addresses, every rank's
    memory is updated, and no old value may be used."""
    require(pointer_of(ptr).element_ty == value.type.element, "{} combined through {}", value.type, ptr.type)
    require(kind in ("add", "max", "min", "xchg") or dtype_of(value).is_int(), "atomic {} needs integers", kind)
    boolean(mask)
    same_form(ptr, value, mask)
    return value.type


@op("memory.atomic_cas", effects=_updates, stage="tile", removed_by=LOWER)
def atomic_cas(
    ptr: Value, compare: Value, value: Value, order: MemoryOrder = "acq_rel", scope: MemoryScope = "gpu"
) -> Type:
    """Atomic compare-and-swap: memory at `ptr` that is bitwise equal to `compare` becomes `value`; returns the old values."""
    require(
        pointer_of(ptr).element_ty == value.type.element == compare.type.element, "types of compare-and-swap differ"
    )
    require(value.type.element.bits in (16, 32, 64), "compare-and-swap needs 16, 32 or 64 bits")
    same_form(ptr, compare, value)
    return value.type


def _polls(ptr: Value, expected: Value, timeout: Value | None) -> None:
    element = pointer_of(ptr).element_ty
    require(element == expected.type.element, "{} awaited through {}", expected.type, ptr.type)
    require(element.is_int() and element.bits in (16, 32, 64), "a poll needs integers of 16, 32 or 64 bits")
    require(timeout is None or timeout.type.element == int64, "a timeout is an int64 number of nanoseconds")


def _awaits(attrs: Attrs) -> tuple[Effect, ...]:
    return READS[attrs["order"]]


@op("memory.poll", effects=_awaits, stage="tile", removed_by=LOWER, needs="block")
def poll(
    ptr: Value, expected: Value, timeout: Value | None, *details: Value, order: PollOrder = "acquire",
    scope: MemoryScope = "gpu", at_least: bool = False, patience: int = 0,
    signal: bool = False,
) -> Type:  # fmt: skip
    """Read memory at `ptr` with relaxed loads until it equals `expected`, then acquire once; returns whether it did.

    With `at_least` the poll ends when memory holds `expected` or a later count, by the sign of the difference. With `patience`
    it is a wait for another rank: after so many nanoseconds it stops the kernel, with a message that names the `details`: this
    rank, and of a `signal` its sender and flag, otherwise twice the word that is awaited.

    Every element has one thread that polls; all threads wait for it. `timeout`: a scalar, in nanoseconds, after which an
    element that differs still gives False and acquires nothing; absent: none, and the result is True."""
    _polls(ptr, expected, timeout)
    require(len(details) == (3 if patience else 0), "a wait for another rank has three details")
    same_form(ptr, expected, *details)
    if timeout is not None:
        scalar(timeout)
    return with_element(ptr.type, int1)


# Accesses by register, for lowered IR and thread-level code; each operation has one instruction shape. Access `i` of `n` is to
# address `ptr + offsets[0][i] + strides[0] * offsets[1][i] + ...` in elements, where `ptr` is one address per thread (a
# scalar) or one per access (an array of n). It moves `registers[i]`, a tuple of `vec` register indices, in one instruction.


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


@op("memory.load_regs", effects=_loads, scope="thread")
def load_regs(
    ptr: Value, mask: Value | None, other: Value | None, *strides: Value,
    offsets: tuple[Table, ...], registers: tuple[Table, ...], vec: int, count: int,
    cache: Cache = "", eviction: Eviction = "", l2: L2Policy = (), prefetch: int = 0, volatile: bool = False,
    order: LoadOrder = "", scope: MemoryScope = "gpu", multimem: Combine = "",
) -> Type:  # fmt: skip
    """Read `count` registers. `mask` is one predicate per access, or one for all; `other` is an array of `count` or absent."""
    _accesses(ptr, mask, strides, offsets, registers, vec)
    require(not order or vec == 1, "an ordered access moves one element")
    require(sorted(r for group in registers for r in group) == list(range(count)), "each register is read once")
    require(other is None or regs(other).count == count, "`other` has a value per register")
    return RegsType(pointer_of(ptr).element_ty, count)


@op("memory.store_regs", effects=_stores)
def store_regs(
    ptr: Value, value: Value, mask: Value | None, *strides: Value,
    offsets: tuple[Table, ...], registers: tuple[Table, ...], vec: int,
    cache: Cache = "", eviction: Eviction = "", l2: L2Policy = (), order: StoreOrder = "", scope: MemoryScope = "gpu",
    multimem: bool = False,
) -> None:  # fmt: skip
    """Write registers; those that no access names are not written."""
    _accesses(ptr, mask, strides, offsets, registers, vec)
    require(not order or vec == 1, "an ordered access moves one element")
    require(regs(value).element == pointer_of(ptr).element_ty, "stored through a pointer to another type")


def _part(mask: Value, begin: Value | None, end: Value | None, n: int) -> None:
    require(regs(mask).count == n, "one predicate per access")
    require(all(x is None or x.type == RegsType(int32, n) for x in (begin, end)), "one number per access")


@op("memory.load_part", effects=_loads, scope="thread", stage="lowered")
def load_part(
    ptr: Value, x: Value, mask: Value, begin: Value | None, end: Value | None, *strides: Value,
    offsets: tuple[Table, ...], registers: tuple[Table, ...], vec: int,
    cache: Cache = "", eviction: Eviction = "", l2: L2Policy = (), prefetch: int = 0, volatile: bool = False,
    order: LoadOrder = "", scope: MemoryScope = "gpu",
) -> Type:  # fmt: skip
    """`x`, with the elements of vectors that a mask cuts read one by one: of the accesses (as in `load_regs`) for which `mask`
    holds those from number `begin` to before `end` of the vector."""
    _accesses(ptr, mask, strides, offsets, registers, vec)
    _part(mask, begin, end, len(registers))
    require(not order and not volatile, "an ordered access moves one element")
    require(regs(x).element == pointer_of(ptr).element_ty, "loaded through a pointer to another type")
    return x.type


@op("memory.store_part", effects=_stores, stage="lowered")
def store_part(
    ptr: Value, value: Value, mask: Value, begin: Value | None, end: Value | None, *strides: Value,
    offsets: tuple[Table, ...], registers: tuple[Table, ...], vec: int,
    cache: Cache = "", eviction: Eviction = "", l2: L2Policy = (), order: StoreOrder = "", scope: MemoryScope = "gpu",
) -> None:  # fmt: skip
    """Write elements as `load_part` reads them."""
    _accesses(ptr, mask, strides, offsets, registers, vec)
    _part(mask, begin, end, len(registers))
    require(not order, "an ordered access moves one element")
    require(regs(value).element == pointer_of(ptr).element_ty, "stored through a pointer to another type")


@op("memory.atomic_regs", effects=_updates, scope="thread")
def atomic_regs(
    ptr: Value, value: Value, mask: Value | None, kind: Atomic, order: MemoryOrder, scope: MemoryScope
) -> Type:
    """Read-modify-write, register by register: `ptr`, `value` and `mask` are arrays of one length."""
    boolean(mask)
    require(regs(ptr).count == regs(value).count, "one address per value")
    return value.type


@op("memory.reduce_regs", effects=_updates)
def reduce_regs(
    ptr: Value, value: Value, mask: Value | None, *strides: Value,
    offsets: tuple[Table, ...], registers: tuple[Table, ...], vec: int, kind: Atomic, order: MemoryOrder,
    scope: MemoryScope, multimem: bool = False,
) -> None:  # fmt: skip
    """Combine registers into memory without reading old values, by accesses of two registers or more (PTX ISA, red with
    `.vec_32_bit` or `.vec_16_bit`), or with `multimem` into that of all ranks: each element is an atomic of its own."""
    _accesses(ptr, mask, strides, offsets, registers, vec)
    vectors = kind == "add" and dtype_of(value).is_floating()
    require(order == "relaxed" and (multimem or vectors), "no such vector")
    require(regs(value).element == pointer_of(ptr).element_ty, "combined through a pointer to another type")


@op("memory.atomic_cas_regs", effects=_updates, scope="thread")
def atomic_cas_regs(
    ptr: Value, compare: Value, value: Value, mask: Value | None, order: MemoryOrder, scope: MemoryScope
) -> Type:
    """Compare-and-swap, register by register."""
    boolean(mask)
    require(regs(ptr).count == regs(value).count == regs(compare).count, "one address per value")
    return value.type


@op("memory.poll_regs", effects=_awaits, scope="thread")
def poll_regs(
    ptr: Value, expected: Value, mask: Value | None, timeout: Value | None, *details: Value, order: PollOrder,
    scope: MemoryScope, at_least: bool = False, patience: int = 0,
    signal: bool = False,
) -> Type:  # fmt: skip
    """Poll, register by register: each thread polls its own addresses, one after another; a masked-off one gives False."""
    _polls(ptr, expected, timeout)
    boolean(mask)
    require(regs(ptr).count == regs(expected).count, "one address per value")
    if timeout is not None:
        scalar(timeout)
    return RegsType(int1, regs(ptr).count)
