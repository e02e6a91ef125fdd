"""Join neighbouring branches of one condition, with nothing but arithmetic between them.

    control.if %first { tcgen05.issue ... }           %bar = arith.add ...
    %bar = arith.add ...                       -->    control.if %first { tcgen05.issue ...; tcgen05.commit %bar }
    control.if %first { tcgen05.commit %bar }

What one block of a cluster does for others stands in branches of its own (`weft.passes.lower.blocks`); joined, its elected
thread is elected once.
"""

from __future__ import annotations

from weft.ir.core import Func, Op, Region
from weft.ops import control


def join_branches(func: Func) -> Func:
    """The function with fewer branches."""
    return func.with_body(_joined(func.body))


def _joined(region: Region) -> Region:
    ops: list[Op] = []
    branch: int | None = None  # where in `ops` the last branch is that another one may join
    for given in region.ops:
        op = _inside(given)
        if _is_branch(op):
            if branch is not None and ops[branch].operands[0] is op.operands[0]:
                op = _both(ops.pop(branch), op)
            branch = len(ops)
        elif not op.kind.pure:
            branch = None
        ops.append(op)
    return Region(region.args, tuple(ops))


def _inside(op: Op) -> Op:
    """The operation with the branches in its regions joined."""
    if not op.regions:
        return op
    return Op(op.kind, op.operands, op.attrs, op.results, tuple(map(_joined, op.regions)), op.loc)


def _is_branch(op: Op) -> bool:
    """Whether something is done or not, and nothing comes of it."""
    return op.kind is control.if_ and not op.results and len(op.regions[1].ops) == 1


def _both(first: Op, second: Op) -> Op:
    """One branch that does what two did."""
    (then, orelse), (after, _) = first.regions, second.regions
    joined = _joined(Region((), (*then.ops[:-1], *after.ops)))
    return Op(first.kind, first.operands, first.attrs, (), (joined, orelse), first.loc)
