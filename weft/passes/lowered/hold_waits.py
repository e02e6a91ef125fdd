"""Keep a wait for wgmmas behind the arithmetic that is written before it.

    mma.wgmma ...                                     mma.wgmma ...
    %p = arith.exp2 %s                          -->   %p = arith.exp2 %s
    mma.warpgroup_wait %o {pendings=0}                sync.schedule_barrier {reason = "to keep line 36 before the wait ..."}
                                                      mma.warpgroup_wait %o {pendings=0}

The arithmetic is there to run while the tensor cores do. It does not depend on the wait, so ptxas is free to issue the wait
first, as it does with everything that takes long: it was seen above all 66 exponentials of a softmax. A barrier of the schedule
costs one instruction. Waits with nothing but scalars and synchronisation since the wgmma get none: there is nothing to overlap.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.analysis.order import ENDS, works
from weft.ir.core import Func, Op, Region, walk
from weft.ops import mma, sync

_HOLDS = ENDS | {sync.schedule_barrier}


def hold_waits(func: Func) -> Func:
    """The lowered function with barriers of the schedule before such waits; unchanged if there are none."""
    if mma.warpgroup_wait not in func.body.kinds:
        return func
    body = _held(func.body)
    return func if body is func.body else func.with_body(body)


def _held(region: Region) -> Region:
    ops: list[Op] = []
    for op in region.ops:
        regions = tuple(map(_held, op.regions))
        work = _work_before(ops) if op.kind is mma.warpgroup_wait else None
        if work is not None:
            ops.append(Op(sync.schedule_barrier, (), {"reason": _reason(work)}, (), (), op.loc))
        ops.append(op if regions == op.regions else Op(op.kind, op.operands, op.attrs, op.results, regions, op.loc))
    made = tuple(ops)
    return region if made == region.ops else Region(region.args, made)


def _work_before(ops: Sequence[Op]) -> Op | None:
    """The first operation on register arrays since the last wgmma or wait, if there is any, and nothing holds it already."""
    first: Op | None = None
    for op in reversed(ops):
        if op.kind in _HOLDS:
            break
        first = next((inner for inner in (op, *(i for r in op.regions for i in walk(r))) if works(inner)), first)
    return first


def _reason(work: Op) -> str:
    line = "arithmetic" if work.loc is None else f"line {work.loc.line}"
    return f"to keep {line} before the wait for MMAs"
