"""Operations that threads execute together, and the check that all of them come.

Each operation declares the scope of control flow that it needs (`OpDef.needs`): a barrier needs all threads of the block or
partition, a shuffle all lanes of a warp. Where some of them are elsewhere, a GPU hangs or computes garbage. `check_scopes`
refuses a kernel in which that could happen. This check finds it in a run, of tile IR and of what passes have made of it. A
condition that may diverge, but is uniform in the run, is fine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from weft.analysis.scopes import SPELLED, divided
from weft.errors import Hazard, Loc, fail, hazard
from weft.ir.core import Op, Region, Scope
from weft.sim.machine.data import Array
from weft.sim.machine.naming import Naming
from weft.sim.memory.warps import shared_in_warps
from weft.sim.rule import Rule


class Running(Protocol):
    """What the check asks of a task: which of its threads are active, and how reports name them."""

    active: Array | None
    threads: int
    pid: tuple[int, int, int]
    slot: int
    names: Naming
    block: Any
    machine: Any

    @property
    def warps(self) -> int:
        """The number of the task's warps."""
        ...


def together(rule: Rule, needs: Scope) -> Rule:
    """The rule of an operation with this need, with the check. Raises MissingThreads."""
    if needs == "thread":
        return rule

    def whole_partition(task: Running, op: Op, *operands: Any) -> Any:
        if task.active is not None:
            _check(task, op, np.bool_(True))
        return rule(task, op, *operands)

    def whole_warps(task: Running, op: Op, *operands: Any) -> Any:
        out = rule(task, op, *operands)
        # Afterwards, because a shuffle itself names the lane that it misses.
        if task.active is not None:
            _check(task, op, shared_in_warps(_active(task), range(task.warps)))
        return out

    return whole_partition if needs == "block" else whole_warps


def _active(task: Running) -> Array:
    """Mask of the active threads, (threads,)."""
    return np.broadcast_to(True if task.active is None else task.active, (task.threads, 1))[:, 0]


def _check(task: Running, op: Op, wanted: Any) -> None:
    """Report a thread that is `wanted` at an operation but not active."""
    active = _active(task)
    absent = wanted & ~active
    if not absent.any():
        return
    away, here = (task.names.thread(int(np.argmax(mask))) for mask in (absent, active))
    whole = "of a warp" if op.kind.needs == "warp" else f"of {task.block.partition(task.slot)}"
    condition = _condition(task, op)
    error = fail(
        hazard.MISSING_THREADS, loc=op.loc, related=() if condition is None else (("the condition", condition),),
        program=task.pid, what=_spelled(op), whole=whole, here=here, away=away,
    )  # fmt: skip
    assert isinstance(error, Hazard)
    error.partitions = (task.block.partition(task.slot),)
    raise error


def _spelled(op: Op) -> str:
    """The author's spelling of an operation, or its name and why a pass has inserted it."""
    reason = op.attrs.get("reason")
    return f"{op.name}, inserted {reason}," if reason else SPELLED.get(op.kind, op.name)


def _condition(task: Running, op: Op) -> Loc | None:
    """The line of the outermost divergent branch or loop around an operation."""
    func = task.machine.func
    diverging = divided(func)
    return next((outer.loc for outer in _around(func.body, op) if outer in diverging), None)


def _around(region: Region, wanted: Op) -> Iterator[Op]:
    """The operations around one, outermost first; none if it is not in the region."""
    for op in region.ops:
        for inner in op.regions:
            found = list(_around(inner, wanted))
            if found or wanted in inner.ops:
                yield from (op, *found)
                return
