"""Crews: the warps of a block, each of which runs the kernel for itself.

The threads of a task run in step. Where they meet at mbarriers by themselves, one warp may wait for what another does later in
the kernel, so the warps of such a kernel (`weft.sim.machine.crewed`) run concurrently, each with values of its own. What the
whole block does together, such as a barrier, is done once, when all warps have come to it; so is an allocation, when the first
of them comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.errors import Loc
from weft.ir.core import Op, Value
from weft.layout import WARP_SIZE
from weft.sim.machine.data import Array, Data, chosen
from weft.sim.machine.sides import Side, run_sides
from weft.sim.machine.wait import Run, Wait
from weft.sim.rule import Rule


class CrewWait(Wait):
    """A warp that waits for the other warps of its block."""

    __slots__ = ("_crew", "_generation")
    follows = True

    def __init__(self, crew: Crew, loc: Loc | None) -> None:
        super().__init__(loc)
        self._crew = crew
        self._generation = crew.generation

    def ready(self) -> bool:
        """True once all warps have come."""
        return self._crew.generation != self._generation

    def words(self) -> str:
        """Message text: how many warps have come."""
        return f" for the block, of which {len(self._crew.came)} warps have come"


class CrewTurn(Wait):
    """A warp that lets others go first."""

    __slots__ = ()

    def ready(self) -> bool:
        """Always."""
        return True


class Crew:
    """The warps of a task. `came`: those that have come to the next operation that all execute together, each with its mask,
    the operation and its operands. `generation`: how many such operations were executed."""

    def __init__(self, threads: int) -> None:
        self._numbers = np.arange(threads)[:, None] // WARP_SIZE
        self.warps = int(self._numbers[-1, 0]) + 1
        self.came: list[tuple[Array, Op, tuple[Any, ...]]] = []
        self.generation = 0
        self._results: tuple[Any, ...] = ()
        self._made: dict[tuple[Op, int], Any] = {}
        self._times: Counter[tuple[int, Op]] = Counter()

    def run(self, task: Any, execute: Callable[[], Run], env: dict[Value, Data]) -> Run:
        """Run a kernel by each warp."""
        sides = [Side(task, execute(), self._numbers == warp, dict(env)) for warp in range(self.warps)]
        yield from run_sides(sides, None)
        return ()

    def together(self, task: Any, op: Op, rule: Rule, suspends: bool, operands: tuple[Any, ...]) -> Run:
        """An operation of the whole block: the last warp that comes executes it, on the values of all."""
        mask = self._numbers == self._warp(task)
        self.came.append((mask, op, operands))
        if len(self.came) < self.warps:
            yield CrewWait(self, op.loc)
            return self._results
        came, self.came = self.came, []
        # Where warps have come to different operations, the rule reports who is missing.
        here = [each for each in came if each[1] is op]
        before = task.active
        task.active = None if len(here) == len(came) else np.logical_or.reduce([mask for mask, _, _ in here])
        try:
            out: Any = rule(
                task,
                op,
                *(_merged(column) for column in zip(*([(m, x) for x in xs] for m, _, xs in here), strict=True)),
            )
            if suspends:
                running: Run = out
                out = yield from running
        finally:
            task.active = before
        self._results = out if isinstance(out, tuple) else () if out is None else (out,)
        self.generation += 1
        return self._results

    def turn(self, op: Op) -> Wait:
        """What a warp waits for that lets others go first."""
        return CrewTurn(op.loc)

    def once(self, task: Any, op: Op, rule: Rule, operands: tuple[Any, ...]) -> Any:
        """An allocation: that of the first warp that comes is everyone's."""
        warp = self._warp(task)
        key = op, self._times[warp, op]
        self._times[warp, op] += 1
        if key not in self._made:
            self._made[key] = rule(task, op, *operands)
        return self._made[key]

    def _warp(self, task: Any) -> int:
        active = np.broadcast_to(task.active, self._numbers.shape)
        return int(self._numbers[np.argmax(active[:, 0]), 0])


def _merged(values: tuple[tuple[Array, Any], ...]) -> Any:
    """One operand, of the values that the warps have, each with its mask."""
    (_, out), *others = values
    for mask, value in others:
        if isinstance(value, Data) and isinstance(out, Data) and value is not out:
            out = chosen(mask, value, out)
    return out
