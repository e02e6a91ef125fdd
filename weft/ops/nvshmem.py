"""NVSHMEM: puts to the memory of other ranks, also where no pointer reaches it, and signals that follow them.

A rank's number in NVSHMEM is its PE. A put names memory of a PE by the address of the same symmetric memory on this rank, and
so does a signal; in the simulator addresses of the PE itself stand for these. Puts are non-blocking (`nvshmem_putmem_nbi`): a
put may read its source and write its target until `quiet`. A signal follows all earlier puts to its PE (`nvshmem_fence`) and no
others. NVSHMEM Library Documentation, "Remote Memory Access", "Memory Ordering" and "Signaling Operations".

Kernels with these operations are linked with NVSHMEM when they are loaded (`weft.runtime.nvshmem`).
"""

from __future__ import annotations

from typing import Literal

from weft.ir.core import Effect, Value
from weft.ir.define import op, reads, writes
from weft.ir.types import int32, int64
from weft.ops.check import boolean, pointer_of, regs, require, same_form, scalar
from weft.ops.memory import READS, WRITES
from weft.ops.tile import LOWER


@op("nvshmem.put", effects=(reads("source"), writes("ptr")), needs="block")
def put(ptr: Value, source: Value, count: Value, pe: Value) -> None:
    """Start a copy of `count` elements at `source`, in symmetric memory of this rank, to `ptr` of a PE. All threads of the
    partition execute it."""
    for value in (ptr, source):
        scalar(value)
    require(pointer_of(ptr) == pointer_of(source), "a put of {} to {}", source.type, ptr.type)
    scalar(count, int64)
    scalar(pe, int32)


@op("nvshmem.quiet", effects=(Effect("sync", "global", order="acq_rel"),))
def quiet() -> None:
    """Wait until all earlier puts are complete: their sources have been read, and their targets written."""


@op("nvshmem.acquire", effects=(Effect("sync", "global", order="acquire"),))
def acquire() -> None:
    """Behind a wait for a signal: make visible what a network has written before the signal
    (`nvshmem_signal_wait_until` ends with it)."""


@op("nvshmem.signal", effects=READS["release"] + WRITES["release"], stage="tile", removed_by=LOWER)
def signal(
    ptr: Value, value: Value, pe: Value, order: Literal["release"] = "release", scope: Literal["sys"] = "sys"
) -> None:
    """Add `value` to the word at `ptr` of a PE, behind all earlier puts to it and all earlier accesses of the program, once per
    element."""
    require(pointer_of(ptr).element_ty == value.type.element == pe.type.element == int32, "signals are of int32")
    same_form(ptr, value, pe)


@op("nvshmem.signal_regs", effects=READS["release"] + WRITES["release"])
def signal_regs(
    ptr: Value,
    value: Value,
    pe: Value,
    mask: Value | None,
    order: Literal["release"] = "release",
    scope: Literal["sys"] = "sys",
) -> None:
    """Signals, register by register: `ptr`, `value`, `pe` and `mask` are arrays of one length."""
    require(pointer_of(ptr).element_ty == value.type.element == pe.type.element == int32, "signals are of int32")
    boolean(mask)
    require(regs(ptr).count == regs(value).count == regs(pe).count, "one PE and one value per address")


CALLS = frozenset({put, quiet, acquire, signal_regs})
"""Operations of lowered IR that call NVSHMEM."""
