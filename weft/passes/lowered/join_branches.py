"""Merge consecutive branches on the same condition that only pure operations separate.

    control.if %first { tcgen05.issue ... }           %bar = arith.add ...
    %bar = arith.add ...                       -->    control.if %first { tcgen05.issue ...; tcgen05.commit %bar }
    control.if %first { tcgen05.commit %bar }

Operations that one block of a cluster executes for others are lowered to one branch each (`weft.passes.lower.blocks`). In a
merged branch one `elect.sync` serves all of them.
"""

from __future__ import annotations

from weft.ir.core import Func, Op, Region
from weft.ops import control


def join_branches(func: Func) -> Func:
    """The function with such branches merged."""
    return func.with_body(_joined(func.body))


def _joined(region: Region) -> Region:
    ops: list[Op] = []
    branch: int | None = None  # index in `ops` of the last branch that another one may be merged into
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
    """The operation with the branches in its regions merged."""
    if not op.regions:
        return op
    return Op(op.kind, op.operands, op.attrs, op.results, tuple(map(_joined, op.regions)), op.loc)


def _is_branch(op: Op) -> bool:
    """Whether the operation is an `if` without results and without an `else`."""
    return op.kind is control.if_ and not op.results and len(op.regions[1].ops) == 1


def _both(first: Op, second: Op) -> Op:
    """One branch with the operations of both."""
    (then, orelse), (after, _) = first.regions, second.regions
    joined = _joined(Region((), (*then.ops[:-1], *after.ops)))
    return Op(first.kind, first.operands, first.attrs, (), (joined, orelse), first.loc)
