"""Lowering of puts and signals by NVSHMEM.

nvshmem.put %p, %s, %n, %pe    -->    sync.barrier; nvshmem.put ...
nvshmem.quiet                  -->    sync.barrier; control.if (thread 0) { nvshmem.quiet }; sync.barrier
"""

from __future__ import annotations

from weft.ir.core import Op, OpDef, Value
from weft.ir.types import ScalarType
from weft.ops import nvshmem, regs, sync
from weft.ops.check import linear_of
from weft.passes.lower.blocks import where
from weft.passes.lower.placement import owned
from weft.passes.lower.rules.memory import operand_form, owner_of, predicate
from weft.passes.lower.state import Lowering, LowerRule


def put(lo: Lowering, op: Op) -> None:
    """All threads copy, behind all that they have stored."""
    lo.emit(sync.barrier, reason="before a put")
    lo.emit(nvshmem.put, *[lo.scalar(value) for value in op.uses])


def by_one(lo: Lowering, op: Op) -> None:
    """One thread calls NVSHMEM for all, which come before and go on behind it together. In a kernel that is launched by
    threads, each one that executes it does."""
    if lo.source.attrs.block is not None:
        lo.emit(op.kind)
        return
    lo.emit(sync.barrier, reason=f"before {op.name}")
    with where(lo, lo.first_thread()):
        lo.emit(op.kind)
    lo.emit(sync.barrier, reason=f"after {op.name}")


def signal(lo: Lowering, op: Op) -> None:
    """One thread signals for each element; if the operands of a scalar signal diverge, each thread does, as in
    `memory.atomic`."""
    ptr = op.uses[0]
    registers = (0,) if isinstance(ptr.type, ScalarType) else owned(linear_of(ptr))
    forms = [operand_form(lo, value) for value in op.uses]
    arrays: list[Value] = [lo.array(lo.picked(form, registers)) for form in forms if form is not None]
    on = predicate(lo, None, registers, owner_of(lo, op, ptr))
    if on is not None and isinstance(on.type, ScalarType):
        on = lo.emit(regs.splat, on, count=len(registers))
    lo.emit(nvshmem.signal_regs, *arrays, on)


RULES: dict[OpDef, LowerRule] = {
    nvshmem.put: put,
    nvshmem.quiet: by_one,
    nvshmem.acquire: by_one,
    nvshmem.signal: signal,
}
