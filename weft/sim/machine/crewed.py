"""Which kernels run with crews (`weft.sim.machine.crews`), and the rules of operations there."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from weft.analysis.handles import is_alloc
from weft.ir.core import Func, Op
from weft.ir.types import TileType
from weft.ops import hints, mbarrier
from weft.sim.rule import Rule


def has_crews(func: Func) -> bool:
    """Whether the warps of a kernel's blocks run concurrently."""
    if func.body.kinds.isdisjoint(mbarrier.ARRIVALS) or func.attrs.block is None:
        return False
    return not any(isinstance(v.type, TileType) for op in func.body.every for v in (*op.uses, *op.results))


def crewed(op: Op, rule: Rule, suspends: bool) -> tuple[Rule, bool]:
    """The rule of an operation in a kernel with crews, and whether it is a generator."""
    if op.kind.needs == "block" or (op.kind is hints.uniform and op.attrs["scope"] == "block"):

        def together(task: Any, op: Op, *operands: Any) -> Generator[Any, None, tuple[Any, ...]]:
            running: Generator[Any, None, tuple[Any, ...]] = task.crew.together(task, op, rule, suspends, operands)
            return (yield from running)

        return together, True
    if op.kind in mbarrier.ARRIVALS:

        def arrive(task: Any, op: Op, *operands: Any) -> Generator[Any, None, tuple[Any, ...]]:
            out = rule(task, op, *operands)
            # Others come to the barrier before this warp goes on, so that a race is found as one, and not as memory that others
            # have yet to write.
            yield task.crew.turn(op)
            return (out,) if op.results else ()

        return arrive, True
    if not is_alloc(op):
        return rule, suspends

    def once(task: Any, op: Op, *operands: Any) -> Any:
        return task.crew.once(task, op, rule, operands)

    return once, suspends
