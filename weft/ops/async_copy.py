"""`cp.async`: asynchronous copies from global to shared memory that each thread issues and waits for (PTX ISA, cp.async).

A copy belongs to the next commit group of its thread. A wait completes groups for the waiting thread only; other threads need a
barrier after it.
"""

from __future__ import annotations

from weft.ir.core import Attrs, Effect, Value
from weft.ir.define import op, reads
from weft.ir.types import RegsType, SharedArrayType, int32
from weft.layout.shared.layouts import Pads
from weft.ops.check import barrier, boolean, pointer_of, require, same_form, scalar, shared, tile
from weft.ops.memory import Cache, L2Policy
from weft.ops.regs import Table
from weft.ops.tile import LOWER

WRITES = Effect("write", "shared", "handle", completes="cp.async")


def _waits(attrs: Attrs) -> tuple[Effect, ...]:
    return (Effect("sync", "shared", completes="cp.async", pendings=attrs["pendings"]),)


@op("async_copy.global_to_shared", effects=(reads("ptr"), WRITES), stage="tile", removed_by=LOWER, verb="copied to")
def global_to_shared(
    handle: Value, ptr: Value, mask: Value | None, cache: Cache = "", l2: L2Policy = (), prefetch: int = 0,
    volatile: bool = False, zeros: bool = True,
) -> None:  # fmt: skip
    """Start an asynchronous copy of the elements at `ptr` to shared memory; where `mask` does not hold, zeros are written, or
    without `zeros` anything.

    Each thread copies the elements whose addresses it holds, 4, 8 or 16 bytes per instruction."""
    t, p = shared(handle), tile(ptr)
    require(t.shape == p.shape and pointer_of(ptr).element_ty == t.element, "{} copied to {}", p, t)
    boolean(mask)
    same_form(ptr, mask)


COPIES = (reads("ptr"), Effect("write", "shared", "memory", completes="cp.async"))


@op("async_copy.copy", effects=COPIES)
def copy(
    memory: Value, base: Value, ptr: Value, mask: Value | None, active: Value | None, begin: Value | None, end: Value | None,
    *strides: Value,
    offsets: tuple[Table, ...], places: Table, vec: int, added: Table = (), pads: Pads = (),
    cache: Cache = "", l2: L2Policy = (), prefetch: int = 0, zeros: bool = True,
) -> None:  # fmt: skip
    """Start copies of `vec` consecutive elements each, 4, 8 or 16 bytes; where `mask` does not hold, zeros are written,
    or without `zeros` anything.

    Copy i reads from the address that `ptr`, `strides` and `offsets` give (as in `memory.load_regs`) and writes to the offset
    that `base`, `places`, `added` and `pads` give (as in `shared.store_regs`). `mask` is one predicate per copy, or one for
    all. Threads in which the scalar `active` does not hold copy nothing. `begin` and `end` restrict the mask to elements from
    number `begin` to before `end` of each copy. The instruction reads no byte behind `end`, but all before it: elements before
    `begin` are copied too, and nothing may use them."""
    t = memory.type
    count = len(places)
    scalar(base)
    boolean(mask)
    boolean(active)
    require(isinstance(t, SharedArrayType) and pointer_of(ptr).element_ty == t.element, "{} copied to {}", ptr.type, t)
    require(vec * t.element.itemsize in (4, 8, 16), "no such copy width")
    require(len(offsets) == len(strides) + 1 and all(len(table) == count for table in offsets), "an address per copy")
    require(len(added) in (0, count), "an added offset per copy, or none")
    require(not isinstance(ptr.type, RegsType) or ptr.type.count == count, "one address per copy")
    require(mask is None or not isinstance(mask.type, RegsType) or mask.type.count == count, "one predicate per copy")
    require(all(x is None or x.type == RegsType(int32, count) for x in (begin, end)), "one number per copy")
    require(begin is None or not zeros, "no zeros are written before the first element")


@op("async_copy.commit", effects=(Effect("sync", "io"),))
def commit() -> None:
    """The copies of each thread since its last commit become a commit group, which may be empty."""


@op("async_copy.wait", effects=_waits)
def wait(pendings: int) -> None:
    """Each thread waits until at most its latest `pendings` commit groups are in flight."""
    require(pendings >= 0, "at least 0 groups stay pending")


ARRIVES = (Effect("update", "shared", "bar", completes="cp.async"),)


@op("async_copy.mbarrier_arrive", effects=ARRIVES, needs="block")
def mbarrier_arrive(bar: Value, increment: bool = True) -> None:
    """Each thread arrives on the mbarrier once all its earlier copies are complete (PTX cp.async.mbarrier.arrive).

    With `increment` the arrivals are added to the phase's pending count; without it they are part of the count (`.noinc`)."""
    barrier(bar)
